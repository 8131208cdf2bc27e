"""Remove what a crash left behind: settled worktrees, one by one, and an agent's own scratch."""

from contextlib import suppress
from pathlib import Path

import psutil

from contracts.events import AttemptStarted
from contracts.words import State
from roles.goal.context import GoalContext
from roles.workspace.worktree import close, open_attempt, remove_tree


def sweep_scratch(context: GoalContext, agent_id: str) -> None:
    """Remove an agent's scratch folder; its one live incarnation is the caller, between steps."""
    folder = context.home / "scratch" / context.goal_id / agent_id
    if folder.is_dir() and not folder.is_symlink():
        remove_tree(folder)
    with suppress(OSError):
        folder.parent.rmdir()


def sweep_worktrees(context: GoalContext) -> list[int]:
    """Close what no claim needs any more; gives the attempts whose worktrees were removed.

    A worktree stays while its attempt runs or is about to start, and while any process works in
    it or that cannot be found out. Its uncommitted edits go to the salvage ref.
    """
    removed = []
    for number, event in leftover_worktrees(context).items():
        close(
            open_attempt(
                context.git,
                context.home,
                goal=context.goal_id,
                hypothesis=event.hypothesis_id or "",
                attempt=number,
                base=event.start.base_commit,
                keep_edits=True,
            )
        )
        removed.append(number)
    return removed


def leftover_worktrees(context: GoalContext) -> dict[int, AttemptStarted]:
    """Find the worktrees that `sweep_worktrees` removes; reads only."""
    root = context.home / "worktrees" / context.goal_id
    if not root.is_dir():
        return {}
    context.follower.catch_up()
    started = {
        event.attempt_number: event
        for event in context.follower.by_revision.values()
        if isinstance(event, AttemptStarted)
    }
    kept, found = _needed(context), {}
    for folder in sorted(root.iterdir()):
        number = int(folder.name) if folder.name.isdigit() else 0
        event = started.get(number)
        if event is None or number in kept or not event.hypothesis_id or _is_worked_in(folder):
            continue
        found[number] = event
    return found


def _needed(context: GoalContext) -> set[int]:
    """List the attempts of claimed items: under way, or reserved and about to start."""
    found = set()
    for todo in context.reader.leases():
        item = context.reader.item(todo)
        if item.get("next_attempt"):
            found.add(int(item["next_attempt"]))
        if item.get("state") == State.ATTEMPT_RUNNING and item.get("attempt"):
            found.add(int(item["attempt"]))
    return found


def _is_worked_in(folder: Path) -> bool:
    """Tell whether a process has its working directory there; not knowing counts as yes."""
    place = folder.resolve()
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(place):
                return True
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        except psutil.AccessDenied:
            continue  # another user's process cannot be in a folder of ours
    return False
