"""Find and end the processes of one step, those that left its session included.

A run's processes are the descendants of its keeper, to which every orphan comes back, so that none
is missed. Three more traits find them where the keeper was killed, and the processes of others:
the root's session, the marker `LABMATES_STEP=<id>` in the environment, and having been seen before.
"""

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARKER = "LABMATES_STEP"
_NAME_LIMIT = 200


@dataclass(frozen=True)
class ProcessIdentity:
    """A process id with the start time that tells it from a later process of the same id.

    Attributes:
        pid: The process id.
        started: Seconds since the epoch, as the kernel counts them.
    """

    pid: int
    started: float


def identify(pid: int) -> ProcessIdentity | None:
    """Name the process that has `pid` now, or None where there is none (a zombie is none)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid=pid, started=process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(identity: ProcessIdentity) -> bool:
    """Tell whether that very process still runs; another one with its id does not count."""
    return identify(identity.pid) == identity


def end_process(identity: ProcessIdentity, *, grace_s: float = 5.0) -> bool:
    """End that very process and its descendants: TERM, then KILL after `grace_s` seconds.

    Returns:
        True if it is gone; also where it was gone before. A process that merely has the same
        id is left alone.
    """
    if not is_alive(identity):
        return True
    tree = Tree(root=identity.pid, marker="")
    tree.sample()
    tree.end(grace_s=grace_s)
    return not is_alive(identity)


@dataclass
class Tree:
    """The processes of one step, as far as they have been seen. Not safe between threads.

    Attributes:
        root: The id of the process that all others descend from.
        marker: The step's id in `LABMATES_STEP`, or "" where it has none.
        keeps_root: The root is a keeper: it is not counted, not named and not ended.
        known: Every process seen so far, the root included.
    """

    root: int
    marker: str
    keeps_root: bool = False
    known: set[psutil.Process] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._learn(self.root)

    def sample(self, *, read_markers: bool = False) -> list[psutil.Process]:
        """Look at descent and session, remember what is new, and give what lives.

        A seen process's later children are found too, wherever they hang by then. With
        `read_markers`, every environment is read as well, which takes twice as long.
        """
        children: dict[int, list[int]] = {}
        for pid, parent, session in _scan():
            children.setdefault(parent, []).append(pid)
            if session == self.root or (read_markers and self._has_marker(pid)):
                self._learn(pid)
        queue = [process.pid for process in self.known if process.is_running()]
        seen = set(queue)
        while queue:
            for pid in children.get(queue.pop(), []):
                if pid not in seen:
                    seen.add(pid)
                    self._learn(pid)
                    queue.append(pid)
        return self.living()

    def living(self) -> list[psutil.Process]:
        """Give the seen processes that still run; zombies are not running."""
        return [process for process in self._counted() if _runs(process)]

    def resident_bytes(self) -> int:
        """Add up the resident memory of what lives; shared pages count once per process."""
        total = 0
        for process in self._counted():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def end(self, *, grace_s: float, patience_s: float = 5.0) -> list[str]:
        """End everything: TERM, `grace_s` seconds of waiting, then KILL until nothing is left.

        Args:
            grace_s: How long a process may take to end by itself; 0 kills at once.
            patience_s: When to give up on what KILL does not end (a process in the kernel).

        Returns:
            What it had to end, as `pid command`, in order of id.
        """
        found = {process.pid: describe(process) for process in self.sample(read_markers=True)}
        if found and grace_s > 0:
            self._signal_all(terminate=True)
            deadline = time.monotonic() + grace_s
            while self.living() and time.monotonic() < deadline:
                time.sleep(0.01)
        if not found:
            return []
        deadline = time.monotonic() + patience_s
        while living := self.sample(read_markers=True):
            for process in living:
                found.setdefault(process.pid, describe(process))
            self._signal_all(terminate=False)
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return [found[pid] for pid in sorted(found)]

    def _counted(self) -> list[psutil.Process]:
        return [found for found in self.known if not (self.keeps_root and found.pid == self.root)]

    def _signal_all(self, *, terminate: bool) -> None:
        # the oldest first: it may want to end its children itself, and its end should be its own
        for process in sorted(self.living(), key=lambda found: (found.create_time(), found.pid)):
            with contextlib.suppress(psutil.Error):
                if terminate:
                    process.terminate()
                    process.resume()  # a stopped process cannot take TERM
                else:
                    process.kill()

    def _has_marker(self, pid: int) -> bool:
        if not self.marker:
            return False
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{MARKER}={self.marker}".encode() in environ.split(b"\0")

    def _learn(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.known.add(psutil.Process(pid))


def describe(process: psutil.Process) -> str:
    """Name a process as `pid command`, at most 200 characters."""
    try:
        command = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        command = "?"
    return f"{process.pid} {command}"[:_NAME_LIMIT]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _scan() -> list[tuple[int, int, int]]:
    """Give id, parent and session of every process.

    One read each; psutil's own list would keep objects of ids that were given away since.
    """
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - a path per process costs more than its read
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{name}/stat").read_bytes()
                fields = stat[stat.rindex(b")") + 2 :].split(maxsplit=4)
                found.append((int(name), int(fields[1]), int(fields[3])))
    return found
