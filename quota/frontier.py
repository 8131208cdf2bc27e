"""`decentralized_research_frontier_v0`: what an agent could take, in order, and what is held back.

Reads only. The order of the classes is that of the store's own decision (`classes_for` in
`lua/30_quota.lua`); a test compares the first runnable item with the decision.
"""

from typing import Any

from contracts.store.reader import Reader

SCHEMA = "decentralized_research_frontier_v0"
PER_CLASS = 50
"""At most so many items of one class are listed."""

_CLASSES = {
    "curator": ("cosign_curator",),
    "proposer": ("cosign_proposer", "settle", "propose"),
    "executor": ("confirm", "retry", "start"),
    "evaluator": ("baseline", "cosign_evaluator", "sign", "holdout", "classify", "evaluate"),
}
_ACTIONS = {
    "baseline": "measure_baseline",
    "holdout": "measure_holdout",
    "settle": "repropose_or_retire",
    "retry": "select",
    "start": "select",
}
_PROMOTION = {
    "holdout": ["holdout", "signature:evaluator", "signature:curator"],
    "sign": ["signature:evaluator", "signature:curator"],
    "cosign_curator": ["signature:curator"],
    "confirm": ["confirmation", "holdout", "signature:evaluator", "signature:curator"],
}
_RETIREMENT = {
    "settle": ["signature:proposer", "signature:evaluator"],
    "cosign_proposer": ["signature:proposer"],
    "cosign_evaluator": ["signature:evaluator"],
}


def build(reader: Reader, agent_id: str) -> dict[str, Any]:
    """Read the frontier of one agent.

    The reads are not one snapshot: an item may move between them, and then stands in its new place
    or in none.
    """
    decision = reader.should_run(agent_id)
    roles = [role for role in reader.agent(agent_id).get("roles", "").split(",") if role]
    ready = _Ready(reader)
    runnable = [
        {**_named(item), "allowed_action": _ACTIONS.get(name, name.partition("_")[0]), "role": role}
        | {"rank": float(item.get("rank") or 0), "rank_reason": item.get("rank_reason", "")}
        for role in _CLASSES
        if role in roles
        for name in _CLASSES[role]
        for item in ready.items(name)
    ]
    held = ready.items("blocked")
    return {
        "schema_version": SCHEMA,
        "goal_id": reader.goal_id,
        "agent_id": agent_id,
        "selected": _selected(decision),
        "reason": str(decision.get("reason", "")),
        "runnable": runnable,
        "blocked": [
            {
                **_named(item),
                "blocked_by": f"gate:{item.get('gate', '')}",
                "visible_as_context": True,
            }
            for item in held
        ]
        + [
            {
                **_named(item),
                "blocked_by": f"claim:{item['claimed_by']}",
                "visible_as_context": True,
            }
            for item in ready.claimed()
            if item["claimed_by"] != agent_id
        ],
        "promotion_candidates": [
            {**_named(item), "requires": [f"gate:{item.get('gate', '')}", *_PROMOTION["sign"]]}
            for item in held
            if item.get("state") == "promotion_gate"
        ]
        + ready.candidates(_PROMOTION),
        "retirement_candidates": ready.candidates(_RETIREMENT),
        "revision": int(str(decision.get("revision") or 0)),
    }


class _Ready:
    """Ready sets and their items, each read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sets: dict[str, list[dict[str, str]]] = {}

    def items(self, name: str) -> list[dict[str, str]]:
        if name not in self._sets:
            found = [self._item(todo) for todo, _ in self._reader.ready(name, count=PER_CLASS)]
            self._sets[name] = [item for item in found if item.get("state")]
        return self._sets[name]

    def claimed(self) -> list[dict[str, str]]:
        found = [self._item(todo) for todo in list(self._reader.leases())[:PER_CLASS]]
        return [item for item in found if item.get("claimed_by")]

    def candidates(self, classes: dict[str, list[str]]) -> list[dict[str, Any]]:
        return [
            {**_named(item), "requires": requires}
            for name, requires in classes.items()
            for item in self.items(name)
        ]

    def _item(self, todo: str) -> dict[str, str]:
        return {"id": todo} | self._reader.item(todo)


def _named(item: dict[str, str]) -> dict[str, Any]:
    return {
        "hypothesis_id": item.get("hyp") or None,
        "todo_id": item["id"],
        "title": item.get("title") or None,
        "state": item.get("state", ""),
    }


def _selected(decision: dict[str, object]) -> dict[str, Any] | None:
    if decision.get("should_run") != "1":
        return None
    return {
        "hypothesis_id": str(decision.get("hyp") or "") or None,
        "todo_id": str(decision["todo"]),
        "reason": str(decision["reason"]),
        "allowed_action": str(decision["action"]),
    }
