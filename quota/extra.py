"""What the store's decision does not carry and people want: the gap, and how long a gate is open.

Read only when the reason needs it. `ask` is any function that sends one command, so that the cold
path (wire) and the warm one (redis-py) share this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.store import keys
from contracts.store.decision import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Ask = Callable[..., object]

_PAGE = 200


def extra_for(ask: Ask, goal_id: str, reply: Mapping[str, object]) -> dict[str, object]:
    """Read what this reply's reason needs; at most a few short reads."""
    reason = reply.get("reason")
    if reason == "blocked_by_gate" and reply.get("open_gate"):
        opened = ask("HGET", keys.gate(goal_id, str(reply["open_gate"])), "opened_at")
        return {"gate_opened_at": int(str(opened))} if opened else {}
    if reason in {"budget_exhausted", "goal_escalated"}:
        return {"gap": read_gap(ask, goal_id)}
    return {}


def read_gap(ask: Ask, goal_id: str) -> dict[str, Any]:
    """Say what the champion reaches of the target: `best`, `target`, `missing`, `unit`, `split`."""
    contract = _contract(ask, goal_id)
    evaluation = contract.get("evaluation", {})
    champion = ask("HGET", keys.goal(goal_id), "champion_hyp")
    split = "held-out" if evaluation.get("holdout") else "dev"
    best = _best(ask, goal_id, str(champion)) if champion else None
    target = evaluation.get("target")
    missing = None
    if best is not None and target is not None:
        down = evaluation.get("direction") == "minimize"
        missing = max(0.0, best - target if down else target - best)
    return {
        "metric": str(evaluation.get("metric", "")),
        "unit": str(evaluation.get("unit", "")),
        "split": split,
        "best": best,
        "target": target,
        "missing": missing,
    }


def _contract(ask: Ask, goal_id: str) -> dict[str, Any]:
    entries = ask("XRANGE", keys.events(goal_id, "curator"), "-", "+", "COUNT", 8)
    for _, fields in _pairs(entries):
        if fields.get("type") == "contract_proposed":
            found = _body(fields).get("contract")
            return found if isinstance(found, dict) else {}
    return {}


def _best(ask: Ask, goal_id: str, champion: str) -> float | None:
    """Find the value of the last decision on the champion, from the newest event backwards."""
    key, end = keys.events(goal_id, "evaluator"), "+"
    while True:
        page = _pairs(ask("XREVRANGE", key, end, "-", "COUNT", _PAGE))
        for _, fields in page:
            if fields.get("type") == "decided" and fields.get("hyp") == champion:
                value = _body(fields).get("decision", {}).get("value")
                return float(value) if isinstance(value, int | float) else None
        if len(page) < _PAGE:
            return None
        end = f"({page[-1][0]}"


def _pairs(entries: object) -> list[tuple[str, dict[str, object]]]:
    """Pair up entries as the wire gives them (`[id, [name, value, ...]]`)."""
    if not isinstance(entries, list):
        return []
    return [(str(entry[0]), as_dict(entry[1])) for entry in entries]


def _body(fields: Mapping[str, object]) -> dict[str, Any]:
    import json  # noqa: PLC0415 - 8 ms, and only these two reasons need it

    try:
        found = json.loads(str(fields.get("body") or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
