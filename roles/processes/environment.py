"""The environment of a child: what is allowed, and nothing else of ours."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_NAMES = ("LANG", "LANGUAGE", "TZ")


def base_env(
    extra: Mapping[str, str] | None = None, *, home: Path, tmp: Path, keep: Iterable[str] = ()
) -> dict[str, str]:
    """Make a child's environment from a list of what is allowed; all else stays out.

    Args:
        extra: Variables that the contract or the caller sets; they win.
        home: A private HOME.
        tmp: A private TMPDIR.
        keep: Names of our own environment that this child may have, such as an agent's key.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_NAMES or name.startswith("LC_") or name in set(keep)
    }
    env |= {"PATH": _foreign_path(), "TERM": "dumb", "HOME": str(home), "TMPDIR": str(tmp)}
    return env | dict(extra or {})


def _foreign_path() -> str:
    """Give PATH without our own venv and without relative entries."""
    own = {str(Path(sys.prefix) / "bin")} if sys.prefix != sys.base_prefix else set()
    entries = os.environ.get("PATH", "").split(os.pathsep)
    kept = [entry for entry in entries if entry.startswith("/") and entry not in own]
    return os.pathsep.join(kept) or _FALLBACK_PATH
