"""Derived state beside the events: what the store acts on, field by field, against replay.

Not compared, since no event carries it: leases, incarnations of agents, what a lane says, the last
operation of an agent and its answer, `lease_ms`, `source_cursor`, `pause_note` and `rank_reason`.
`target_met` of an item counts at the promotion gate and behind it, `replay_of` where it is there.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from contracts import records
from contracts.canonical import text_digest
from contracts.contract import goal_limits
from contracts.derived_peers import declared_words, peers_words
from contracts.guard_context import holdout_passes
from contracts.labels import target_met
from contracts.replay_state import GateState, GoalState, ItemState, ready_class
from contracts.stored import DerivedState
from contracts.words import State, TodoKind

READY = (
    "baseline",
    "blocked",
    "classify",
    "confirm",
    "cosign_curator",
    "cosign_evaluator",
    "cosign_proposer",
    "evaluate",
    "holdout",
    "idea",
    "propose",
    "retry",
    "settle",
    "sign",
    "start",
    "successor",
)
"""Every set that the store hands work out of, and the one of what waits for a person."""

Expected = str | int | bool
Found = Iterator["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A number against an expectation."""

    name: str
    actual: object
    expected: object
    passed: bool

    def to_json_dict(self) -> dict[str, object]:
        """Give the check as documents write it."""
        return {
            "name": self.name,
            "actual": self.actual,
            "expected": self.expected,
            "pass": self.passed,
        }


def goal_findings(state: GoalState, goal: Mapping[str, str]) -> list[Finding]:
    """Compare limits, counters and the champion of the goal's hash."""
    fields = goal_fields(state)
    return [_same(name, goal.get(name, ""), expected) for name, expected in fields.items()]


def differences(state: GoalState, stored: DerivedState) -> list[Finding]:
    """Name each difference outside the goal's hash."""
    compared = (
        *_roster(state, stored),
        *_items(state, stored),
        *_gates(state, stored),
        *_hypotheses(state, stored),
        *_ready(state, stored),
    )
    return [each for each in compared if not each.passed]


def _same(name: str, stored: str, expected: Expected) -> Finding:
    """Compare a field: text as it is (a flag is `1` or absent); a counter's 0 may be absent."""
    if isinstance(expected, bool):
        actual: Expected = stored == "1" if stored in {"", "1"} else stored
    elif isinstance(expected, int):
        actual = _number(stored or "0")
    else:
        actual = stored
    return Finding(name, actual, expected, actual == expected)


def _number(text: str) -> Expected:
    """Read a number in its one spelling; anything else stays text, which equals no number."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(text) if plain and str(int(text)) == text else text


def _revision(value: int | None) -> str:
    """Give a number whose absence has a meaning of its own, as the hash has it."""
    return str(value) if value else ""


def ms(at: datetime) -> int:
    """Give a time as the store writes it."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def goal_fields(state: GoalState) -> dict[str, Expected]:
    """Give the fields of the goal's hash; a flag is `1` or absent, a number's 0 may be absent."""
    champion, contract = state.champion, state.contract
    limits: dict[str, Expected] = dict(goal_limits(contract)) if contract else {}
    deadline = ""
    if contract and state.approved_at and contract.policy.deadline_s > 0:
        deadline = str(ms(state.approved_at) + 1000 * contract.policy.deadline_s)
    source = str(int(state.source_open)) if state.approved else ""
    return limits | {
        "rev": state.revision,
        "contract_hash": state.contract_hash,
        "status": "approved" if state.approved else "created",
        "deadline": deadline,
        "paused": state.paused,
        "source_open": source,
        "baseline": _revision(state.baseline_revision),
        "champion_commit": champion.commit if champion else "",
        "champion_rev": _revision(state.champion_revision),
        "champion_todo": (champion.todo_id if champion else None) or "",
        "champion_hyp": (champion.hypothesis_id if champion else None) or "",
        "target_met": state.target_met,
        "promotions": max(len(state.champions) - 1, 0),
        "improvements": state.improvements,
        "best_value": "" if state.best_value is None else f"{state.best_value:.17g}",
        "successor": state.successor,
        "successor_count": state.successor_count,
        "ideas": state.ideas,
        "idea_count": state.idea_count,
        "live": state.live,
        "attempts_used": state.attempts_used,
        "attempts_reserved": state.attempts_reserved,
        "attempt_count": state.attempt_count,
        "lanes": state.lanes,
        "holdouts": state.holdouts,
        "cost": state.cost_micro_usd,
        "hypothesis_count": len(state.hypotheses),
        "gate_count": len(state.gates),
    }


def _members(name: str, stored: Iterable[str], expected: Iterable[str]) -> Found:
    there, wanted = set(stored), set(expected)
    for each in sorted(there ^ wanted):
        yield Finding(f"{name} {each}", _listed(each in there), _listed(each in wanted), False)


def _listed(there: bool) -> str:
    return "listed" if there else "absent"


def _roster(state: GoalState, stored: DerivedState) -> Found:
    yield from _members("agents", stored.roster, state.roster)
    for agent_id, fields in stored.agents.items():
        roles = ",".join(state.roster.get(agent_id, ()))
        yield _same(f"{agent_id} roles", fields.get("roles", ""), roles)
        declared = declared_words(state, agent_id)
        yield _same(f"{agent_id} declared", fields.get("declared", ""), declared)
        claim = state.claims.get(agent_id, "")
        yield _same(f"{agent_id} claim", fields.get("claim", ""), claim)


def _hypotheses(state: GoalState, stored: DerivedState) -> Found:
    yield from _members("hypotheses", stored.hypotheses, state.hypotheses)
    for hypothesis_id, todo_id in state.hypotheses.items():
        yield _same(f"{hypothesis_id} todo", stored.hypotheses.get(hypothesis_id, ""), todo_id)
    yield from _members("texts", stored.texts, state.texts)
    for digest, hypothesis_id in state.texts.items():
        yield _same(f"{digest} hypothesis", stored.texts.get(digest, ""), hypothesis_id)


def _gates(state: GoalState, stored: DerivedState) -> Found:
    yield from _ranks("open gates", stored.open_gates, open_gates(state))
    for gate_id in sorted(stored.gates.keys() | state.gates.keys()):
        fields, gate = stored.gates.get(gate_id, {}), state.gates.get(gate_id)
        if gate is None:
            yield Finding(gate_id, _listed(bool(fields)), _listed(False), not fields)
            continue
        for name, expected in gate_fields(gate).items():
            yield _same(f"{gate_id} {name}", fields.get(name, ""), expected)
        asked = _asks(fields.get("body", ""), gate)
        words = "what the event says" if asked else fields.get("body", "")
        yield Finding(f"{gate_id} body", words, "what the event says", asked)


def open_gates(state: GoalState) -> dict[str, float]:
    """Give the gates that wait for a person, with the revision they were opened at."""
    return {
        gate.gate_id: float(gate.opened_revision)
        for gate in state.gates.values()
        if gate.decision is None
    }


def gate_fields(gate: GateState) -> dict[str, str]:
    """Give the fields of a gate's hash but its body, which is the event's."""
    return {
        "status": str(gate.decision.verdict if gate.decision else "open"),
        "by": gate.decided_by,
        "kind": str(gate.kind),
        "todo": gate.todo_id,
        "opened_rev": str(gate.opened_revision),
        "opened_at": str(ms(gate.opened_at)),
    }


def _asks(body: str, gate: GateState) -> bool:
    if body != body.strip():
        return False
    try:
        return records.Gate.model_validate_json(json.dumps(json.loads(body)["gate"])) == gate.gate
    except (ValueError, KeyError, TypeError):
        return False


def _ranks(name: str, stored: Mapping[str, float], expected: Mapping[str, float]) -> Found:
    yield from _members(name, stored, expected)
    for each in sorted(stored.keys() & expected.keys()):
        there, wanted = stored[each], expected[each]
        yield Finding(f"{name} {each} score", there, wanted, there == wanted)


def rank(item: ItemState) -> float:
    """Give the score that the item is filed under."""
    return float(item.hypothesis.frontier_rank) if item.hypothesis else 0.0


def spelled(rank: float) -> str:
    """Give a rank as the item's hash has it: in the fewest of 15 to 17 digits that give it back."""
    texts = (f"{rank:.{digits}g}" for digits in (15, 16, 17))
    return next(text for text in texts if float(text) == rank)


def ready_sets(state: GoalState) -> dict[str, dict[str, float]]:
    """Give every set that work is handed out of, with the score of each todo."""
    expected: dict[str, dict[str, float]] = {name: {} for name in READY}
    for item in state.items.values():
        name = ready_class(state, item)
        if name in expected:
            expected[name][item.todo_id] = rank(item)
    return expected


def _ready(state: GoalState, stored: DerivedState) -> Found:
    for name, todos in ready_sets(state).items():
        yield from _ranks(f"ready:{name}", stored.ready.get(name, {}), todos)


# Items -------------------------------------------------------------------------------------------


def _items(state: GoalState, stored: DerivedState) -> Found:
    for todo_id in sorted(stored.items.keys() | state.items.keys()):
        fields, item = stored.items.get(todo_id, {}), state.items.get(todo_id)
        if item is None or not fields:
            there = bool(fields)
            yield Finding(todo_id, _listed(there), _listed(item is not None), there == bool(item))
            continue
        for name, expected in item_fields(state, item).items():
            yield _same(f"{todo_id} {name}", fields.get(name, ""), expected)
        yield from _lenient(state, item, fields)


def _lenient(state: GoalState, item: ItemState, fields: Mapping[str, str]) -> Found:
    """Compare the fields that the store may leave behind, or writes in more than one spelling."""
    todo_id, filed = item.todo_id, ready_class(state, item)
    wants, stored = item.wants_confirm, fields.get("wants_confirm", "")
    # The store asks for the confirmation of a waiting item only when it files it again.
    waits = filed in {"blocked", "cosign_proposer", "cosign_evaluator"}
    if not (waits and wants == "champion_moved" and stored == ""):
        yield _same(f"{todo_id} wants_confirm", stored, wants)
    attempt = state.attempt_of(item)
    replay_of = (attempt.start.replay_of if attempt else None) or ""
    if fields.get("replay_of"):
        yield _same(f"{todo_id} replay_of", fields["replay_of"], replay_of)
    passed = passed_holdout(state, item)
    known = _recoveries(fields.get("recoveries", ""))
    wanted_recoveries = [each.model_dump(mode="json") for each in item.recoveries]
    yield Finding(f"{todo_id} recoveries", known, wanted_recoveries, known == wanted_recoveries)
    yield _flag(f"{todo_id} holdout_pass", fields.get("holdout_pass", ""), passed)
    if item.state in {State.PROMOTION_GATE, State.PROMOTED}:
        yield _flag(f"{todo_id} target_met", fields.get("target_met", ""), meets(state, item))
    if item.kind == TodoKind.CONTRACT:  # nobody is handed it, and it is filed only behind a gate
        return
    for name, revision in peers_words(state, item).items():
        yield _same(f"{todo_id} {name}", fields.get(name, ""), revision)
    yield _same(f"{todo_id} class", fields.get("class", ""), filed)
    there, wanted = fields.get("rank", ""), spelled(rank(item))
    yield _same(f"{todo_id} rank", there, wanted)


def _recoveries(text: str) -> object:
    """Read what the item keeps of its recoveries; what each could say of itself is in no event."""
    if not text:
        return []
    try:
        found = [records.Recovery.model_validate(each) for each in json.loads(text)]
    except (ValueError, TypeError):
        return text
    return [each.model_copy(update={"detail": ""}).model_dump(mode="json") for each in found]


def _flag(name: str, stored: str, expected: bool) -> Finding:
    """Compare a flag whose no is `0` or absent."""
    return _same(name, "" if stored == "0" else stored, expected)


def passed_holdout(state: GoalState, item: ItemState) -> bool:
    """Tell whether the held-out record of the item's attempt passes."""
    attempt = state.attempt_of(item)
    return bool(item.holdout_revision and attempt and holdout_passes(attempt.holdout, state))


def meets(state: GoalState, item: ItemState) -> bool:
    """Tell whether what the item was measured with reaches the target."""
    attempt = state.attempt_of(item)
    if attempt is None or state.contract is None:
        return False
    measured = attempt.holdout.measurement if attempt.holdout else None
    if measured is None and attempt.evaluation and not state.holdout_required:
        measured = attempt.evaluation.measurement
    return target_met(measured, state.contract.evaluation)


def item_fields(state: GoalState, item: ItemState) -> dict[str, Expected]:
    """Give the fields of an item's hash; `contracts.expected` adds the lenient ones."""
    hypothesis = item.hypothesis
    bases = {each.revision: each.commit for each in state.champions}
    return {
        "kind": item.kind,
        "state": str(item.state),
        "version": str(item.version),
        "hyp": item.hypothesis_id or "",
        "title": hypothesis.title if hypothesis else item.title,
        "family": hypothesis.mechanism_family if hypothesis else "",
        "text": text_digest(item.text) if item.kind == TodoKind.IDEA else "",
        "added_rev": _revision(item.added_revision) if hypothesis else "",
        "touched": _revision(item.touched),
        "ended_rev": _revision(item.ended_revision),
        "claimed_by": item.claimed_by,
        "claim_role": str(item.claim_role or ""),
        "incarnation": item.incarnation,
        "action": str(item.action or ""),
        "fence": _revision(item.fence),
        "reserved": item.reserved,
        "in_lane": item.in_lane,
        "selected_from": str(item.selected_from),
        "next_attempt": _revision(item.next_attempt),
        "attempt": _revision(item.attempt),
        "base_rev": _revision(item.base_revision),
        "base_commit": bases.get(item.base_revision, "") if item.attempt else "",
        "evidence_rev": _revision(item.evidence_revision),
        "evaluation_rev": _revision(item.evaluation_revision),
        "holdout_rev": _revision(item.holdout_revision),
        "commit": item.commit,
        "owner": "accepted" if item.owner_accepted else "",
        "confirmations": item.confirmations,
        "retries": item.retries,
        "reworks": item.reworks,
        "unchanged": item.unchanged,
        "lapses": item.lapses,
        "stale": "".join(f" {fence}" for fence in item.stale) + " " if item.stale else "",
        "declines": item.declines,
        "holdouts": item.holdouts,
        "gates": len(item.gates),
        "gate": item.gates[0] if item.gates else "",
        "doomed": item.doomed,
        "spent_attempt": _revision(item.spent_attempt),
        "signed_to": str(item.signed_to),
        "signed_role": str(item.signed_role or ""),
        "signed_by": item.signed_by,
        "signed_rev": _revision(item.signed_revision),
        "signed_touched": _revision(item.signed_touched),
        "decided_rev": _revision(item.decided_revision),
    }
