"""The lane of a declared role: waits for a new revision, runs its command, keeps what it prints.

Theory of operation. A role beyond the four is data on the roster, and so is this lane: it is handed
no item and writes no event. For each new revision (those that come while the command runs are one)
its command gets what the declaration reads as one JSON document on stdin, in a closed environment
without the store's address and under a time limit. Its output is kept in the goal's folder of this
machine, `lanes/<agent>/`: `latest.txt` and, beside it, `latest.json` with revision and exit code.

Not here: what the command does with it; a command that fails is on show in the lane's words and is
run again at the next revision.
"""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import structlog

from contracts.canonical import canonical
from contracts.declared import DeclaredRole
from contracts.errors import LabmatesError, RefusedError, StoreError
from contracts.store.connect import with_retries
from contracts.words import Role
from roles.goal.context import GoalContext, open_context
from roles.lanes.program import program
from roles.lanes.worker import OVER_PHASES, enlist, leave, listen, sit_out
from roles.processes.process import Limits, ProcessOutcome, base_env, call, run
from roles.steps.lane import Lane, Stop, incarnation_of_this_process

log = structlog.get_logger()

_CALM_S = 1.0
"""Between the starts of two runs, so that a busy goal costs one process a second at most."""
_LIMITS = Limits(memory_bytes=1 << 30, file_bytes=64 << 20, processes=64)
_FRONTIER = ("confirm", "retry", "start", "idea", "blocked")


def run_declared(goal_id: str, agent_id: str, *, url: str | None = None, stay: bool = False) -> int:
    """Serve a declared role until the goal is over or a signal ends it; gives 0.

    Raises:
        RefusedError: The agent declares no role, or another process is this agent now.
        StoreError: The store cannot be used at the start.
    """
    context = with_retries(lambda: open_context(goal_id, url=url))
    declared = declaration_of(context, agent_id)
    stop = Stop()
    listen(stop)
    identity = incarnation_of_this_process()
    # the four roles are not its own: `title` is what it says it is
    lane = Lane(context, agent_id, Role.CURATOR, identity["inc"], stop, title=declared.name)
    enlist(lane, identity)
    lane.start_lease(int(context.reader.require_goal()["lease_ms"]) / 3000)
    try:
        _serve(lane, declared, stay=stay)
    finally:
        lane.end_lease()
        leave(lane)
    return 0


def declaration_of(context: GoalContext, agent_id: str) -> DeclaredRole:
    """Give an agent's declaration from the roster.

    Raises:
        RefusedError: It declares none.
    """
    found = context.reader.agent(agent_id).get("declared")
    if not found:
        message = f"{agent_id} declares no role"
        mend = [["labmates", "agent", "list"]]
        raise RefusedError(message, reason="agent_unknown", missing=agent_id, mend=mend)
    return DeclaredRole.model_validate_json(found)


def _serve(lane: Lane, declared: DeclaredRole, *, stay: bool) -> None:
    done = outages = 0
    started = -_CALM_S
    follower = lane.context.follower
    while not lane.stop.draining:
        try:
            follower.catch_up()
            if follower.revision > done:
                calm = started + _CALM_S - time.monotonic()
                if calm > 0:
                    lane.pause(calm)
                    continue
                done, started = follower.revision, time.monotonic()
                _once(lane, declared, done)
                continue
            phase = lane.context.reader.should_run("-", brief=True).get("phase")
            if phase in OVER_PHASES and not stay:
                follower.catch_up()  # the end itself may be newer than what was read above
                if follower.revision <= done:
                    return
                continue
            lane.say("waiting", "frontier_empty", waits_for=f"revision {done + 1}")
            follower.wait(1.0)
            outages = 0
        except StoreError as error:
            log.warning("store_outage", error=error.message)
            sit_out(lane, error, outages)
            outages += 1
        except (LabmatesError, OSError) as error:
            log.warning("run_failed", error=str(error))
            lane.pause(_CALM_S)


def _once(lane: Lane, declared: DeclaredRole, revision: int) -> None:
    """Run the command on what there is now, and keep what it printed."""
    context = lane.context
    folder = context.folder / "lanes" / lane.agent_id
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {"goal_id": context.goal_id, "revision": revision}
    given |= {name: _READ[name](context) for name in declared.reads}
    (folder / "input.json").write_text(canonical(given) + "\n", encoding="utf-8")
    lane.say("working", f"{declared.name} at revision {revision}")
    outcome = run(
        ["/bin/sh", "-c", 'exec "$@" <input.json', "sh", *declared.command],
        cwd=folder,
        env=base_env(home=folder / "home", tmp=folder / "tmp"),
        timeout_s=declared.timeout_s,
        limits=_LIMITS,
        stop=lambda: lane.stop.now,
    )
    if outcome.ok:
        _replace(folder / "latest.txt", outcome.stdout)
    else:
        log.warning("command_failed", ended_by=str(outcome.ended_by), stderr=outcome.stderr[-500:])
    _replace(folder / "latest.json", canonical(_receipt(outcome, revision)) + "\n")
    lane.say("waiting", f"revision {revision}: {'kept' if outcome.ok else 'the command failed'}")


def _receipt(outcome: ProcessOutcome, revision: int) -> dict[str, Any]:
    return {
        "revision": revision,
        "ok": outcome.ok,
        "exit_code": outcome.exit_code,
        "ended_by": str(outcome.ended_by),
        "duration_s": round(outcome.duration_s, 3),
        "stderr": outcome.stderr[-2000:],
    }


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


# What a declaration may read ---------------------------------------------------------------------


def _graph(context: GoalContext) -> object:
    """Read the evidence graph from the program that makes it: the read side is another room's."""
    environment = {**os.environ, "LABMATES_HOME": str(context.home)}
    if context.store:
        environment["LABMATES_STORE_URL"] = context.store
    done = call(
        [*program(), "graph", "--json", "--goal-id", context.goal_id],
        cwd=context.folder,
        env=environment,
    )
    if done.returncode:
        message = "the evidence graph cannot be read"
        raise LabmatesError(message, facts={"says": done.stderr.decode(errors="replace")[-300:]})
    found: object = json.loads(done.stdout)
    return found


def _frontier(context: GoalContext) -> list[dict[str, Any]]:
    found = []
    for name in _FRONTIER:
        for todo_id, rank in context.reader.ready(name):
            item = context.reader.item(todo_id)
            found.append(
                {
                    "todo_id": todo_id,
                    "hypothesis_id": item.get("hyp") or None,
                    "title": item.get("title") or None,
                    "state": item.get("state", ""),
                    "set": name,
                    "rank": rank,
                }
            )
    return found


def _gates(context: GoalContext) -> list[dict[str, Any]]:
    found = []
    for gate_id in context.reader.open_gates():
        gate = context.reader.gate(gate_id)
        body: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            body = json.loads(gate.get("body", "{}")).get("gate", {})
        found.append(
            {
                "gate_id": gate_id,
                "kind": gate.get("kind", ""),
                "todo_id": gate.get("todo", ""),
                "opened_at_ms": int(gate.get("opened_at") or 0),
                "question": body.get("question", ""),
            }
        )
    return found


_READ = {"graph": _graph, "frontier": _frontier, "gates": _gates}
