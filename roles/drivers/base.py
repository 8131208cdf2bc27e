"""What a driver is: it turns a brief into changed files, and says how that went.

A driver is a module with one function, `run(brief)`. It changes files in the worktree and nothing
else; whether it may have changed them is checked elsewhere. Its output is data, never an
instruction, and never a score.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from contracts.errors import UsageError
from roles.processes.process import EndedBy, ProcessOutcome

DRIVERS: dict[str, str] = {
    "command": "roles.drivers.command",
    "files": "roles.drivers.files",
    "patch": "roles.drivers.patch",
}


class DriverStatus(StrEnum):
    """How a driver's turn ended."""

    CHANGED = "changed"
    NO_CHANGE = "no_change"
    TIMEOUT = "timeout"
    SILENT = "silent"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    BASE_CONFLICT = "base_conflict"
    DRIVER_ERROR = "driver_error"
    STOPPED = "stopped"


_FAILURES = {
    EndedBy.EXIT: DriverStatus.CRASH,
    EndedBy.SIGNAL: DriverStatus.CRASH,
    EndedBy.TIMEOUT: DriverStatus.TIMEOUT,
    EndedBy.SILENCE: DriverStatus.SILENT,
    EndedBy.OUT_OF_MEMORY: DriverStatus.OUT_OF_MEMORY,
    EndedBy.STOPPED: DriverStatus.STOPPED,
}


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What a driver is asked to do.

    Attributes:
        worktree: Where files may change.
        editable: Globs of what the attempt may change.
        protected: Globs of what it may not.
        timeout_s: Wall clock seconds for the whole turn.
        silence_s: Seconds without output until the turn ends, or None.
        change_dir: The prepared change, for drivers that take one.
        command: The command line, for drivers that run one.
        env: Variables that the child gets beside the allowed ones.
        feedback: What the last attempt of this hypothesis failed with, for the next one; data.
        log_path: Where the raw output goes.
        stop: Asked while a child runs; True ends the turn.
    """

    goal_id: str
    hypothesis_id: str
    attempt: int
    title: str
    hypothesis: str
    worktree: Path
    editable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    timeout_s: float
    silence_s: float | None = None
    change_dir: Path | None = None
    command: str = ""
    feedback: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    log_path: Path | None = None
    stop: Callable[[], bool] | None = None


@dataclass(frozen=True, kw_only=True)
class DriverOutcome:
    """How a driver's turn went.

    Attributes:
        summary: One line for people.
        cost_usd: What the turn cost, 0 where the driver does not say.
        usage: Counts that the driver reports, such as tokens.
        session_id: By which the agent can go on, or None.
        process: The child's outcome, where there was one.
    """

    status: DriverStatus
    summary: str
    cost_usd: float = 0.0
    usage: Mapping[str, int] = field(default_factory=dict)
    session_id: str | None = None
    process: ProcessOutcome | None = None


class Driver(Protocol):
    """A module or object that carries out briefs."""

    def run(self, brief: Brief) -> DriverOutcome:
        """Carry out the brief; never raises for what the agent or the change does."""
        ...


def get_driver(name: str) -> Driver:
    """Give the driver of that name; its module is loaded now.

    Raises:
        UsageError: There is none; the message lists those there are.
    """
    if name not in DRIVERS:
        message = f"{name!r} is no driver; there are {', '.join(sorted(DRIVERS))}"
        raise UsageError(message)
    return cast("Driver", import_module(DRIVERS[name]))


def status_of(outcome: ProcessOutcome, *, has_changed: bool) -> DriverStatus:
    """Turn a child's end into a status; edits of a child that failed do not count."""
    if outcome.ok:
        return DriverStatus.CHANGED if has_changed else DriverStatus.NO_CHANGE
    return _FAILURES[outcome.ended_by]


def file_stamps(worktree: Path) -> dict[str, tuple[int, int, int]]:
    """Give mode, size and change time (ns) of every file; two of them differ after an edit.

    The change time is the kernel's, so that a tool which sets times back hides nothing.
    """
    found = {}
    for root, folders, files in os.walk(worktree):
        for name in [*files, *folders]:
            path = Path(root) / name
            if name == ".git" or (name in folders and not path.is_symlink()):
                continue
            info = path.lstat()
            found[str(path)] = (info.st_mode, info.st_size, info.st_ctime_ns)
        folders[:] = [name for name in folders if name != ".git"]
    return found
