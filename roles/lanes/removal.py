"""The end of a goal: its keys in the store, and what this machine keeps of it.

Never the repository: its files stay, its branches too unless they are asked for. Worktrees are
closed through git, so that the repository keeps no entry of a folder that is gone; edits that no
commit holds go to their salvage ref first. A folder that is not ours is left and named.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from contracts.errors import LabmatesError, RefusedError, UsageError
from contracts.replay_state import GoalState
from contracts.store.backup import read_backup
from contracts.store.home import labmates_home
from contracts.store.reader import Reader
from contracts.store.rebuild import diagnose
from contracts.store.removal import drop_goal
from roles.goal.goals import goal_folder, repository_of
from roles.steps.lane import is_dead_here
from roles.workspace.git import OWN_REFS, Git
from roles.workspace.worktree import close, open_attempt, remove_tree


def require_archived(
    reader: Reader, file: Path | None, *, no_archive: bool
) -> Mapping[str, str] | None:
    """Check that a file holds the goal as it is; gives its heads, None without an archive.

    Raises:
        UsageError: No file is named, or it does not hold the goal.
        RecordsError: The file contradicts itself.
    """
    goal_id = reader.goal_id
    if no_archive:
        return None
    mend = [["labmates", "goal", "archive", f"{goal_id}.jsonl.gz", "--goal-id", goal_id]]
    if file is None:
        message = f"no file is named that holds {goal_id}"
        hint = "Name it with --archive, or say --no-archive."
        raise UsageError(message, mend=mend, hint=hint, tail="Nothing was removed.")
    for found in read_backup(file):
        if found.goal_id == goal_id:
            return found.heads
    message = f"{file} does not hold the goal {goal_id}"
    raise UsageError(message, mend=mend, tail="Nothing was removed.")


def remove_goal(reader: Reader, heads: Mapping[str, str] | None, *, branches: bool) -> list[str]:
    """Drop a goal's keys and its folders on this machine; gives what was removed.

    Raises:
        RefusedError: Lanes live, or the goal has moved on since it was archived.
        StoreError: The store cannot be written.
    """
    goal_id, home = reader.goal_id, labmates_home()
    if lives := _live_agents(reader):
        message = f"lanes of {goal_id} still live: {', '.join(lives)}"
        mend = [["labmates", "down", "--goal-id", goal_id]]
        missing = "the end of all lanes"
        tail = "Nothing was removed."
        raise RefusedError(message, reason="lanes_live", missing=missing, mend=mend, tail=tail)
    state = diagnose(reader).state
    repository = _repository(goal_id)
    gone = [f"{drop_goal(reader, heads)} keys of {goal_id}"]
    demo = home / "demo" / goal_id
    own = repository is not None and repository == demo
    if repository is not None and not own:
        gone += _close_worktrees(state, Git(repository), home)
        if branches:
            gone += _delete_branches(goal_id, Git(repository))
    folders = [home / "scratch" / goal_id, goal_folder(goal_id)]
    if own or repository is None:
        folders.append(home / "worktrees" / goal_id)
    if own:
        folders.append(demo)
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            remove_tree(folder)
            gone.append(str(folder))
    return gone


def _live_agents(reader: Reader) -> list[str]:
    """List the agents with a live process: here by their pid, elsewhere by their lease."""
    now, found = reader.now_ms(), set()
    for agent_id in reader.agent_ids():
        agent = reader.agent(agent_id)
        host, pid = agent.get("inc_host", ""), agent.get("inc_pid", "")
        dead = is_dead_here(host, pid, agent.get("inc_start", ""))
        if agent.get("inc") and not dead and int(agent.get("inc_until") or 0) > now:
            found.add(agent_id)
    folder = goal_folder(reader.goal_id) / "lanes"
    for file in folder.glob("*.json") if folder.is_dir() else []:
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(file.read_text())
            if not is_dead_here(os.uname().nodename, str(noted["pid"]), str(noted["start"])):
                found.add(file.stem)
    return sorted(found)


def _repository(goal_id: str) -> Path | None:
    try:
        return repository_of(goal_id)
    except LabmatesError:
        return None


def _close_worktrees(state: GoalState, git: Git, home: Path) -> list[str]:
    root, gone = home / "worktrees" / state.goal_id, []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        attempt = state.attempts.get(int(folder.name) if folder.name.isdigit() else 0)
        if attempt is None:
            continue
        found = open_attempt(
            git,
            home,
            goal=state.goal_id,
            hypothesis=attempt.hypothesis_id,
            attempt=attempt.number,
            base=attempt.start.base_commit,
            keep_edits=True,
        )
        close(found)
        gone.append(str(folder))
    with suppress(OSError):  # what is not ours stays, and so does its folder
        root.rmdir()
    return gone


def _delete_branches(goal_id: str, git: Git) -> list[str]:
    gone = []
    for ref, oid in git.refs(f"{OWN_REFS}{goal_id}/").items():
        git.update_ref(ref, "0" * len(oid), oid)
        gone.append(ref)
    return gone
