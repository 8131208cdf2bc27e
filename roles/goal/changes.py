"""Prepared changes: each a folder of whole files or of one patch, named by a queue's line."""

import shutil
import tempfile
from pathlib import Path

from contracts.errors import DriverError
from roles.goal.context import GoalContext
from roles.goal.sources import changes_folder
from roles.workspace.scope import name_fault


def change_folder(context: GoalContext, name: str) -> Path:
    """Give the folder of a prepared change, outside the repository.

    The goal's own folder holds it, or it is written there once from the approved base commit. A
    change that is neither here nor there gives an empty path, and the driver says so.
    """
    place = context.folder / "changes" / name
    if place.is_dir():
        return place
    prefix = f"{changes_folder(context.contract.strategy.queue)}/{name}/".removeprefix("./")
    commit = context.contract.base_commit
    found = [e for e in context.git.list_tree(commit) if e.path.startswith(prefix)]
    place.parent.mkdir(parents=True, exist_ok=True)
    if not found:
        return place
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".change-"))
    try:
        for entry in found:
            inside = entry.path.removeprefix(prefix)
            if entry.type != "blob" or entry.mode == "120000" or name_fault(inside):
                message = f"{entry.path} cannot be part of a prepared change"
                raise DriverError(message)
            (scratch / inside).parent.mkdir(parents=True, exist_ok=True)
            (scratch / inside).write_bytes(context.git.show(commit, entry.path))
        if not place.is_dir():
            scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place
