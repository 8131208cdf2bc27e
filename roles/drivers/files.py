"""The driver `files`: copies whole prepared files into the worktree.

Whole files apply on any base. A prepared file may lie outside the editable scope, as an agent's
edit may; the scope check is there to catch it. It never lands outside the worktree.
"""

import os
import stat
from pathlib import Path

from roles.drivers.base import Brief, DriverOutcome, DriverStatus


def run(brief: Brief) -> DriverOutcome:
    """Copy every file of `change_dir` to the same path; all of them or none."""
    source = brief.change_dir
    if source is None or not source.is_dir():
        return _error(f"there is no folder of prepared files: {source}")
    files = []
    for root, folders, names in os.walk(source):
        for name in [*names, *folders]:
            path = Path(root) / name
            relative = path.relative_to(source)
            if path.is_symlink():
                return _error(f"the prepared change holds a link: {relative}")
            if name.lower() == ".git":
                return _error(f"the prepared change holds git's own files: {relative}")
            if name in names:
                if fault := _fault(brief.worktree, relative):
                    return _error(fault)
                files.append(relative)
    changed = [name for name in sorted(files) if _copy(source / name, brief.worktree / name)]
    if not changed:
        return DriverOutcome(
            status=DriverStatus.NO_CHANGE, summary="the files are there already, as prepared"
        )
    names = [str(name) for name in changed]
    return DriverOutcome(status=DriverStatus.CHANGED, summary=f"wrote {', '.join(names)}")


def _fault(worktree: Path, relative: Path) -> str:
    """Say why nothing may be written there, or ""."""
    place = worktree
    for part in relative.parts:
        place = place / part
        if place.is_symlink():
            return f"{relative} would be written through the link {place.relative_to(worktree)}"
        if place != worktree / relative and place.exists() and not place.is_dir():
            return f"{place.relative_to(worktree)} is a file, not a folder"
    return f"{relative} is a folder" if place.is_dir() else ""


def _copy(source: Path, target: Path) -> bool:
    """Copy content and executable bit; False where both are the same already."""
    content = source.read_bytes()
    mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
    if target.exists():
        is_executable = bool(target.stat().st_mode & stat.S_IXUSR)
        if target.read_bytes() == content and is_executable == (mode == 0o755):
            return False
        target.unlink()  # a hard link elsewhere must keep its content
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, mode), "wb") as file:
        file.write(content)
    return True


def _error(summary: str) -> DriverOutcome:
    return DriverOutcome(status=DriverStatus.DRIVER_ERROR, summary=summary)
