"""What this machine keeps of a goal: lanes, worktrees, scratch, the champion's branch.

Nothing that is unsettled, another machine's or not ours is touched.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from contracts.errors import LabmatesError, PreconditionError
from contracts.store.follow import Follower
from contracts.store.home import labmates_home
from contracts.store.launch import server_binary
from contracts.store.reader import Reader
from contracts.store.server import drop_lane
from contracts.store.writer import Writer
from roles.doctor.check import Check, found, missing, ok, some
from roles.goal.context import GoalContext
from roles.goal.goals import contract_of, goal_folder, repository_of
from roles.lanes.sweep import leftover_worktrees, sweep_scratch, sweep_worktrees
from roles.steps.champion import champion_ref_behind, move_champion_ref
from roles.steps.lane import is_dead_here
from roles.workspace.git import Git

_MACHINE = "machine"


def machine_checks(*, own_store: bool) -> Iterator[Check]:
    """Check the programs and the folder that labmates needs."""
    git = shutil.which("git")
    yield ok(_MACHINE, "git", git) if git else missing(_MACHINE, "git", "there is no git on PATH")
    if own_store:
        try:
            yield ok(_MACHINE, "server program", str(server_binary()))
        except PreconditionError as error:
            mend = error.mend[0] if error.mend else ()
            yield missing(_MACHINE, "server program", error.message, mend)
    home = labmates_home()
    there = next(path for path in (home, *home.parents) if path.exists())
    if os.access(there, os.W_OK | os.X_OK) and there.is_dir():
        yield ok(_MACHINE, "LABMATES_HOME", str(home))
    else:
        yield missing(
            _MACHINE, "LABMATES_HOME", f"{there} cannot be written", ["ls", "-ld", str(there)]
        )


def goal_checks(reader: Reader, *, fix: bool) -> Iterator[Check]:
    """Check what a goal has left on this machine; `fix` removes what nobody needs any more."""
    goal_id = reader.goal_id
    mend = ["labmates", "doctor", "--fix", "--goal-id", goal_id]
    yield _lanes(reader, mend, fix=fix)
    if not (goal_folder(goal_id) / "goal.json").exists():
        yield ok(goal_id, "repository", "not on this machine")
        return
    try:
        context = GoalContext(
            goal_id=goal_id,
            contract=contract_of(reader),
            reader=reader,
            writer=Writer(reader.client, goal_id, url=reader.url),
            follower=Follower(reader),
            git=Git(repository_of(goal_id)),
            home=labmates_home(),
        )
        yield ok(goal_id, "repository", str(repository_of(goal_id)))
        yield _worktrees(context, mend, fix=fix)
        yield _scratch(context, mend, fix=fix)
        yield _champion(context, mend, fix=fix)
    except LabmatesError as error:
        yield missing(goal_id, "repository", error.message)


def _lanes(reader: Reader, mend: list[str], *, fix: bool) -> Check:
    """Find incarnations, lane hashes and notes of processes of this machine that are gone."""
    goal_id, dead, silent = reader.goal_id, {}, []
    for agent_id in reader.agent_ids():
        agent, lane = reader.agent(agent_id), reader.lane(agent_id)
        host, pid = agent.get("inc_host", ""), agent.get("inc_pid", "")
        if agent.get("inc") and is_dead_here(host, pid, agent.get("inc_start", "")):
            dead[agent_id] = agent["inc"]
        if lane and lane.get("state") != "down" and (agent_id in dead or not agent.get("inc")):
            silent.append(agent_id)
    notes = list(_dead_notes(goal_id))
    if not (dead or silent or notes):
        return ok(goal_id, "lanes", "none without its process")
    names = sorted({*dead, *silent, *(file.stem for file in notes)})
    if fix:
        for agent_id, incarnation in dead.items():
            Writer(reader.client, goal_id, url=reader.url).leave(
                agent_id=agent_id, incarnation=incarnation
            )
        for agent_id in silent:
            drop_lane(reader, agent_id)
        for file in notes:
            file.unlink(missing_ok=True)
    return found(goal_id, "lanes", f"without a process: {some(names)}", mend, mended=fix)


def _dead_notes(goal_id: str) -> Iterator[Path]:
    folder = goal_folder(goal_id) / "lanes"
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            noted = json.loads(file.read_text())
            pid, start = str(noted["pid"]), str(noted["start"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_dead_here(os.uname().nodename, pid, start):
            yield file


def _worktrees(context: GoalContext, mend: list[str], *, fix: bool) -> Check:
    name, left = "worktrees", sorted(leftover_worktrees(context))
    if not left:
        return ok(context.goal_id, name, "none that is settled")
    if fix:
        sweep_worktrees(context)
    says = f"of settled attempts: {some(left)}"
    return found(context.goal_id, name, says, mend, mended=fix)


def _scratch(context: GoalContext, mend: list[str], *, fix: bool) -> Check:
    """Find scratch folders of agents that have no live incarnation."""
    name, root = "scratch", context.home / "scratch" / context.goal_id
    left = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        agent = context.reader.agent(folder.name)
        dead = is_dead_here(
            agent.get("inc_host", ""), agent.get("inc_pid", ""), agent.get("inc_start", "")
        )
        if folder.is_dir() and not folder.is_symlink() and (dead or not agent.get("inc")):
            left.append(folder.name)
    if not left:
        return ok(context.goal_id, name, "none without its lane")
    if fix:
        for agent_id in left:
            sweep_scratch(context, agent_id)
    return found(context.goal_id, name, f"of agents that are gone: {some(left)}", mend, mended=fix)


def _champion(context: GoalContext, mend: list[str], *, fix: bool) -> Check:
    name, behind = "champion branch", champion_ref_behind(context)
    if behind is None:
        return ok(context.goal_id, name, "at the promoted commit, or none is promoted")
    now, commit = behind
    if fix:
        move_champion_ref(context)
    says = f"at {now[:8] or 'nothing'}, the record says {commit[:8]}"
    return found(context.goal_id, name, says, mend, mended=fix)
