"""What `labmates status` knows: one document of the goal as it is now, read only.

Derived state, leases and what the lanes say of themselves; not one snapshot, so a number may be a
step ahead of another. A lane whose process is not alive is `down`, whatever it said last.
"""

from typing import Any

from contracts.contract import ResearchContract
from contracts.declared import DeclaredRole
from contracts.errors import RecordsError, StoreError
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.text import gap
from contracts.words import Direction, Role
from quota.document import build as decision_document
from quota.document import iso
from roles.commands.gate_text import measured
from roles.commands.shown_gate import shown_gate
from roles.goal.goals import contract_of

SHOWN = 5
"""At most so many hypotheses of the frontier are shown."""

NOBODY = "-"
"""No agent: asks only for budgets and phase (no agent id starts with a dash)."""


def build(reader: Reader) -> dict[str, Any]:
    """Read everything that the status shows."""
    goal = reader.require_goal()
    decision = _decision(reader)
    now = reader.now_ms()
    contract, records = _contract(reader)
    best = _best(reader, goal)
    ready = [todo for name in ("confirm", "retry", "start") for todo, _ in reader.ready(name)]
    return {
        "goal_id": reader.goal_id,
        "phase": decision["phase"] or "unapproved",
        "revision": decision["revision"],
        "at": iso(now),
        "paused": goal.get("pause_note", "") if goal.get("paused") == "1" else None,
        "records": records,
        "metric": _metric(contract),
        "best": best,
        "missing": _missing(contract, goal, best["value"] if best else None),
        "gates": [_gate(reader, name) for name in reader.open_gates()],
        "lanes": _lanes(reader, now),
        "selector": contract.strategy.selector if contract else None,
        "frontier_total": len(ready),
        "frontier": [_hypothesis(reader, todo) for todo in ready[:SHOWN]],
        "budget": decision["budget"] | {"deadline_s": int(goal.get("deadline_s") or 0) or None},
    }


def _decision(reader: Reader) -> dict[str, Any]:
    try:
        reply = reader.should_run(NOBODY, brief=True)
    except StoreError as error:
        if "function not found" not in str(error).lower():
            raise
        ensure_library(reader.client)
        reply = reader.should_run(NOBODY, brief=True)
    return decision_document(reply, goal_id=reader.goal_id, agent_id=NOBODY)


def _contract(reader: Reader) -> tuple[ResearchContract | None, str | None]:
    """Give the contract, or in its place why it cannot be read: status never fails on records."""
    try:
        return contract_of(reader), None
    except RecordsError as error:
        return None, error.message


def _metric(contract: ResearchContract | None) -> dict[str, Any]:
    if contract is None:
        return {"name": "", "unit": "", "target": None, "split": "held-out"}
    found = contract.evaluation
    split = "held-out" if found.holdout else "dev"
    return {"name": found.metric, "unit": found.unit, "target": found.target, "split": split}


def _best(reader: Reader, goal: dict[str, str]) -> dict[str, Any] | None:
    todo = goal.get("champion_todo", "")
    if not todo:
        return None
    return _score(reader, todo) | {
        "hypothesis_id": goal.get("champion_hyp") or None,
        "commit": goal.get("champion_commit") or None,
    }


def _missing(
    contract: ResearchContract | None, goal: dict[str, str], best: float | None
) -> str | None:
    """Say what the target still lacks; None once it is met."""
    counts = [int(goal.get(name) or 0) for name in ("improvements", "improvements_required")]
    met = goal.get("target_met") == "1"
    if contract is None or (met and counts[0] >= counts[1]):
        return None
    found = contract.evaluation
    return gap(
        best,
        found.target,
        down=found.direction == Direction.MINIMIZE,
        met=met,
        improvements=(counts[0], counts[1]),
        unit=found.unit,
    )


def _score(reader: Reader, todo: str) -> dict[str, Any]:
    evaluation, holdout = measured(reader, todo, reader.item(todo).get("attempt", ""))
    found = holdout.measurement if holdout and holdout.measurement else None
    if found is None and evaluation:
        found = evaluation.measurement
    spread = found.spread if found else None
    return {
        "value": found.value if found else None,
        "low": spread.low if spread else None,
        "high": spread.high if spread else None,
    }


def _gate(reader: Reader, name: str) -> dict[str, Any]:
    found = shown_gate(reader, name)
    return _score(reader, found.item["id"]) | {
        "gate_id": name,
        "kind": found.fields.get("kind", ""),
        "question": str(found.body.get("question", "")),
        "todo_id": found.item["id"],
        "hypothesis_id": found.item.get("hyp") or None,
        "open_for_s": found.open_for_s,
    }


def _lanes(reader: Reader, now_ms: int) -> list[dict[str, Any]]:
    lanes = []
    leases = reader.leases()
    lease_ms = int(reader.goal().get("lease_ms") or 0)
    for name in reader.agent_ids():
        agent = reader.agent(name)
        declared = agent.get("declared", "")
        if not agent.get("roles") and not declared:
            continue
        lane = reader.lane(name)
        alive = int(agent.get("inc_until") or 0) > now_ms
        since = int(lane.get("since_ms") or 0)
        todo = agent.get("claim", "")
        beat = int(agent.get("inc_until") or 0) - lease_ms
        ended = bool(todo) and leases.get(todo, 0) <= now_ms
        doing = lane.get("doing", "") if alive else ""
        if ended:  # by the clock; nobody has asked since, and no process is needed to see it
            doing = f"its lease on {todo} ended; whoever asks next gives it back"
        lanes.append(
            {
                "agent_id": name,
                "roles": [declared_name(declared)] if declared else agent["roles"].split(","),
                "declared": bool(declared),
                "state": _lane_state(lane) if alive else "down",
                "since_s": max(0, now_ms - since) // 1000 if alive and since else None,
                "heartbeat_s": max(0, now_ms - beat) // 1000 if alive else None,
                "todo_id": todo or None,
                "lease_ended": ended,
                "doing": doing,
                "waits_for": lane.get("waits_for", "") if alive else "",
                "last": lane.get("last", ""),
            }
        )
    order = [str(role) for role in Role]

    def place(lane: dict[str, Any]) -> tuple[int, str]:
        first = str(lane["roles"][0])
        return (order.index(first) if first in order else len(order)), str(lane["agent_id"])

    return sorted(lanes, key=place)


def declared_name(text: str) -> str:
    """Give the name of a declared role; status never fails on records."""
    try:
        return DeclaredRole.model_validate_json(text).name
    except ValueError:
        return "unreadable"


def _lane_state(lane: dict[str, str]) -> str:
    return "draining" if lane.get("draining") else lane.get("state", "idle")


def _hypothesis(reader: Reader, todo: str) -> dict[str, Any]:
    item = reader.item(todo)
    return {
        "todo_id": todo,
        "hypothesis_id": item.get("hyp") or None,
        "title": item.get("title") or None,
        "rank_reason": item.get("rank_reason", ""),
    }
