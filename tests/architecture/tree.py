"""The repository as the architecture tests see it: what git lists, and what git would add."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("contracts", "quota", "roles", "projection", "demo")
# Repositories that presets hand to candidates: data of the product, not its source.
PRESET_DATA = "demo/presets/"


@cache
def listed() -> tuple[Path, ...]:
    """Name every file of the work tree that git has or would add, relative to the root."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted({name for name in done.stdout.split("\0") if name})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files(*tops: str) -> list[Path]:
    """Name the Python files below the root folders `tops`, the presets' data left out."""
    return [
        path
        for path in listed()
        if path.suffix == ".py"
        and path.parts[0] in tops
        and not path.as_posix().startswith(PRESET_DATA)
    ]


def parsed(path: Path) -> ast.Module:
    """Parse one file of the tree."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))
