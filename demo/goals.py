"""The demo's own goals: the next free id, the workspace, which one is unfinished, who runs it.

`LABMATES_HOME/demo/` holds one workspace a goal and `lock`, which the process that tends the lanes
holds as long as it lives; the file names its goal.
"""

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from contracts.errors import MachineError, PreconditionError
from contracts.store.home import labmates_home
from contracts.store.library import ensure_library
from contracts.store.reader import Reader, goal_ids
from contracts.store.writer import Writer
from demo.lines import DEMO_OPERATOR
from demo.preset import Preset, make_workspace
from demo.watch import watch
from roles.goal.contract_file import read_contract
from roles.goal.goals import create_goal, goal_folder


def demo_folder() -> Path:
    """Give the folder of all demo workspaces; it may not exist yet."""
    return labmates_home() / "demo"


def numbers_of(preset: str, names: Iterable[str]) -> list[int]:
    """Give the numbers of those names that are goals of a preset, sorted."""
    form = re.compile(rf"{re.escape(preset)}-([1-9][0-9]{{0,8}})")
    return sorted(int(found[1]) for name in names if (found := form.fullmatch(name)))


def next_goal_id(preset: str, stored: Iterable[str] = ()) -> str:
    """Give the goal id that the next run gets: one more than any folder or stored goal has."""
    home = labmates_home()
    names = list(stored)
    for folder in (home / "demo", home / "goals"):
        with contextlib.suppress(OSError):
            names += [entry.name for entry in folder.iterdir()]
    return f"{preset}-{max(numbers_of(preset, names), default=0) + 1}"


def unfinished(reader: Reader, preset: str) -> list[str]:
    """List this machine's goals of the preset that are not over, newest first."""
    found = []
    for number in reversed(numbers_of(preset, goal_ids(reader.client, url=reader.url))):
        goal_id = f"{preset}-{number}"
        if not (goal_folder(goal_id) / "goal.json").exists():
            continue  # another machine's
        if not (demo_folder() / goal_id).is_dir():
            continue  # not the demo's, or its workspace is gone
        watched = watch(Reader(reader.client, goal_id, url=reader.url))
        watched.catch_up()
        if watched.state.approved and not watched.is_over():
            found.append(goal_id)
    return found


def make_goal(preset: Preset, goal_id: str, writer: Writer) -> Path:
    """Make the workspace, the prepared changes and the approved goal; gives the workspace.

    Raises:
        PreconditionError: git or numpy is missing, or the workspace's place is taken.
        MachineError: The disk takes no more; nothing is left behind.
    """
    _require_modules(preset)
    workspace, folder = demo_folder() / goal_id, goal_folder(goal_id)
    try:
        workspace.mkdir(parents=True)
    except OSError as error:
        raise _unwritable(workspace, error) from error
    is_made = False
    try:
        make_workspace(preset, workspace, python=sys.executable)
        planned = read_contract(workspace, goal_id=goal_id)
        if preset.changes.is_dir():
            shutil.copytree(preset.changes, folder / "changes", copy_function=shutil.copyfile)
        ensure_library(writer.client)
        create_goal(writer, planned.contract, DEMO_OPERATOR, workspace, contract_text=planned.text)
        is_made = True
    except OSError as error:  # shutil.Error is one, and has no strerror
        raise _unwritable(workspace, error) from error
    finally:
        if not is_made:
            shutil.rmtree(workspace, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
    return workspace


def _unwritable(workspace: Path, error: OSError) -> MachineError:
    message = f"the workspace {workspace} cannot be written: {error.strerror or 'copying failed'}"
    hint = "Free some space, or set LABMATES_HOME to another folder."
    return MachineError(message, hint=hint, tail="Nothing was started.")


def _require_modules(preset: Preset) -> None:
    """Refuse early what the first measurement would fail at: the preset's programs import numpy."""
    texts = [path.read_bytes() for path in preset.repo_files.glob("*.py")]
    if importlib.util.find_spec("numpy") is None and any(b"import numpy" in t for t in texts):
        message = f"the preset {preset.name} needs numpy, and {sys.executable} has none"
        mend = [[sys.executable, "-m", "pip", "install", "labmates[demo]"]]
        raise PreconditionError(message, mend=mend, tail="Nothing was started.")


# Who runs it -------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_lock() -> Iterator[int | None]:
    """Hold the lock of this machine's demo; gives None where another process holds it."""
    path = demo_folder() / "lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise MachineError(message, hint="Free some space, or set LABMATES_HOME.") from error
    try:
        yield descriptor if _is_locked(descriptor) else None
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Take the lock; asks three times, since one who only watches holds it for a moment."""
    for _ in range(3):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.03)
    return False


def name_goal(lock: int, goal_id: str) -> None:
    """Write into the lock's file which goal its holder runs; empty while it has none."""
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, goal_id.encode(), 0)
    except OSError as error:
        message = f"the lock of the demo cannot be written: {error.strerror}"
        raise MachineError(message) from error


def named_goal() -> str:
    """Read which goal the holder of the lock runs; empty where it has not said yet."""
    try:
        return (demo_folder() / "lock").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
