"""The derived state that events imply, whole, as the store would hold it: what `doctor` puts back.

Built from the same fields that `contracts.derived` compares, so a rebuilt goal compares equal.

Not derived, since no event carries it: the place in a source (`source_cursor`; lost, it is the
source's start, and what is there already is refused as a duplicate), why an item has its rank, the
store's incarnation, incarnations of agents, their last operation and its answer, what a lane says,
and how long a lease still lasts. A stored value stays where there is one; a lease that is missing
lasts `lease_ms` from now, and `lease_ms` is what the last claim was given.
"""

import json

from contracts.canonical import canonical
from contracts.derived import (
    Expected,
    gate_fields,
    goal_fields,
    item_fields,
    meets,
    open_gates,
    passed_holdout,
    rank,
    ready_sets,
    spelled,
)
from contracts.derived_peers import declared_words, peers_words
from contracts.events import Claimed
from contracts.replay_state import GoalState, ItemState, ready_class
from contracts.stored import DerivedState
from contracts.words import State, TodoKind

LEASE_MS = 30_000
KEPT = {"goal": ("lease_ms", "source_cursor", "store"), "item": ("rank_reason",)}
"""Fields that are not derived; the stored value stays."""


def expected_state(state: GoalState) -> DerivedState:
    """Give every derived hash and set of a replayed goal; absent fields are empty text."""
    return DerivedState(
        goal=_texts(goal_fields(state)) | {"pause_note": state.pause_note},
        items={todo_id: _item(state, item) for todo_id, item in state.items.items()},
        agents={
            agent_id: {
                "roles": ",".join(roles),
                "claim": state.claims.get(agent_id, ""),
                "declared": declared_words(state, agent_id),
            }
            for agent_id, roles in state.roster.items()
        },
        gates={
            gate_id: gate_fields(gate) | {"body": canonical({"gate": gate.gate.to_json_dict()})}
            for gate_id, gate in state.gates.items()
        },
        roster=frozenset(state.roster),
        hypotheses=dict(state.hypotheses),
        texts=dict(state.texts),
        ready=ready_sets(state),
        open_gates=open_gates(state),
    )


def lease_ms_of(state: GoalState) -> int:
    """Give the length of a lease as the last claim had it; 30 s where nothing was claimed yet."""
    for revision in sorted(state.events, reverse=True):
        event = state.events[revision]
        if isinstance(event, Claimed) and event.lease_until is not None:
            return max(1, round((event.lease_until - event.at).total_seconds() * 1000))
    return LEASE_MS


def _item(state: GoalState, item: ItemState) -> dict[str, str]:
    fields = _texts(item_fields(state, item))
    attempt = state.attempt_of(item)
    gated = item.state in {State.PROMOTION_GATE, State.PROMOTED}
    fields |= {
        "wants_confirm": item.wants_confirm,
        "replay_of": (attempt.start.replay_of if attempt else None) or "",
        "holdout_pass": "1" if passed_holdout(state, item) else "",
        "target_met": "1" if gated and meets(state, item) else "",
        "recoveries": _recoveries(item),
        **peers_words(state, item),
    }
    if item.kind != TodoKind.CONTRACT or item.gates:
        fields["class"] = ready_class(state, item)
    if item.kind != TodoKind.CONTRACT:
        fields["rank"] = spelled(rank(item))
    return fields


def _recoveries(item: ItemState) -> str:
    """Give what is known of an item's recoveries; what a holder said of its own end is lost."""
    found = [each.model_dump(mode="json") for each in item.recoveries]
    return json.dumps(found, separators=(",", ":")) if found else ""


def _texts(fields: dict[str, Expected]) -> dict[str, str]:
    """Write fields as the store's hashes have them; a flag is `1` or absent, so is a number 0."""
    return {
        name: ("1" if value else "") if isinstance(value, bool) else _number(value)
        for name, value in fields.items()
    }


def _number(value: str | int) -> str:
    return str(value) if value != 0 else ""
