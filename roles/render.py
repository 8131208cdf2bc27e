"""Errors for people and for machines: the only place that turns one into text."""

import json
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from contracts.errors import LabmatesError, RefusedError
from contracts.store.home import labmates_home
from contracts.text import facts, inert

_SECRET_WORDS = ("password", "token", "secret", "credential")


def colour(stream: TextIO) -> bool:
    """Tell whether `stream` takes colour: a terminal, and neither NO_COLOR nor a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, codes: str, *, on: bool) -> str:
    """Put text between ANSI codes (`1;31`) where colour is on."""
    return f"\x1b[{codes}m{text}\x1b[0m" if on else text


def command_line(argv: Sequence[str]) -> str:
    """Give a command that can be pasted."""
    return shlex.join(inert(word) for word in argv)


def error_document(error: LabmatesError) -> dict[str, Any]:
    """Give an error as its one JSON document."""
    details: dict[str, Any] = dict(error.facts)
    if isinstance(error, RefusedError):
        details |= {"reason": error.reason, "missing": error.missing}
    found: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "details": details,
        "mend": error.mend,
    }
    return {"error": found}


def error_text(error: LabmatesError, *, on: bool = False, width: int = 80) -> str:
    """Give an error as people read it: thing, facts, mend, what was not done."""
    head = styled("labmates:", "1;31", on=on) + " " + styled(inert(error.message), "1", on=on)
    pairs = {inert(label): inert(text, lines=True) for label, text in error.facts.items()}
    mends = [command_line(argv) for argv in error.mend]
    if error.hint:
        mends.append(inert(error.hint))
    lines = facts(pairs, width=width)
    for position, mend in enumerate(mends):
        # A command must paste as it looks, so it is never wrapped; a hint may be.
        label = "" if position else "Mend"
        if position < len(error.mend):
            lines.append(f"{label:<11}{mend}")
        else:
            lines += facts([(label, mend)], width=width)
    if error.tail:
        lines.append(inert(error.tail))
    return "\n".join([head, *lines]) + "\n"


def print_error(error: LabmatesError, *, as_json: bool) -> int:
    """Print an error where it belongs (stdout with `--json`, else stderr); gives its exit code."""
    if as_json:
        sys.stdout.write(json.dumps(error_document(error), ensure_ascii=True) + "\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(error_text(error, on=colour(sys.stderr)))
    return error.exit_code


def print_fault(error: Exception, argv: Sequence[str], *, as_json: bool) -> int:
    """Write a report of a fault of ours to a file and name it; gives exit code 70."""
    try:
        path = str(_write_report(error, argv))
    except OSError as failed:
        path = f"none: it could not be written ({failed.strerror})"
    fault = LabmatesError(
        f"a fault in labmates itself: {type(error).__name__}",
        facts={"report": path, "says": str(error)[:200] or "nothing"},
        hint="Please send us that file; it holds no environment variables.",
    )
    return print_error(fault, as_json=as_json)


def _write_report(error: Exception, argv: Sequence[str]) -> Path:
    folder = labmates_home() / "faults"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    # The address of a store may hold its password.
    shown = ["..." if "://" in word or _is_secret(word) else word for word in argv]
    text = "".join(traceback.format_exception(error))
    path.write_text(
        f"at {now.isoformat()}\nargv {shown}\npython {sys.version}\n\n{text}",
        encoding="utf-8",
        errors="backslashreplace",
    )
    path.chmod(0o600)
    return path


def _is_secret(word: str) -> bool:
    return any(part in word.lower() for part in _SECRET_WORDS)
