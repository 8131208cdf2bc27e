"""Write a report's files: a new folder, whole or not at all, never over an earlier one."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from contracts.errors import PreconditionError, UsageError


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _move(source: Path, target: Path) -> bool:
    """Move a filled folder to its place; False if something is there already."""
    try:
        source.rename(target)  # onto an empty folder it would succeed; ours are never empty
    except OSError:
        if target.exists() or target.is_symlink():
            return False
        raise
    return True


def write_new(parent: Path, files: Mapping[str, str], *, name: str = "") -> Path:
    """Write files into a new folder and give it; concurrent writers get a folder each.

    Args:
        parent: Where the folder is made; made itself where it is missing.
        files: Contents by file name.
        name: The folder's name; empty means the next free `report-<n>`.

    Raises:
        UsageError: A folder of that name is there already.
        PreconditionError: The place cannot be written.
    """
    staged: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=".report-", dir=parent))
        staged.chmod(0o755)
        _fill(staged, files)
        if name:
            if (parent / name).exists() or not _move(staged, parent / name):
                message = f"{parent / name} is there already; a report never goes over one"
                raise UsageError(message, tail="Nothing was written.")
            return parent / name
        number = 1
        while (parent / f"report-{number}").exists() or not _move(
            staged, parent / f"report-{number}"
        ):
            number += 1
        return parent / f"report-{number}"
    except OSError as error:
        message = f"the report cannot be written to {parent}"
        raise PreconditionError(message, facts={"system": str(error)}) from error
    finally:
        if staged is not None and staged.exists():
            shutil.rmtree(staged)
