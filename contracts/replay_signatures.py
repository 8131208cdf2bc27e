"""Replay of decisions and of signatures, the second of which moves the item."""

from contracts import events as ev
from contracts.guards import Context, first_missing
from contracts.labels import target_met
from contracts.replay_items import (
    end_item,
    fail,
    free,
    held_item,
    leave_lane,
    move,
    recovered,
    refile,
    require,
    unsign,
)
from contracts.replay_state import Champion, GoalState, ItemState, standing_signature
from contracts.replay_work import context
from contracts.transitions import Rule, find_rule
from contracts.words import Direction, EventType, Role, State


def decided(state: GoalState, event: ev.Decided) -> None:
    """Take `decided`: the evaluator's decision, in effect with the second signature."""
    item = held_item(state, event)
    wanted = item.touched
    require(event.decision.evidence_revision == wanted, f"the evidence is at revision {wanted}")
    item.decided_revision = event.revision


def signed(state: GoalState, event: ev.Signed) -> None:
    """Take `signed`: a first signature, a second one, or a refusal to sign."""
    item = held_item(state, event)
    found = event.signature
    revision = item.touched
    bound = event.record_revision == revision == found.evidence_revision
    if event.reason == "declined":
        _declined(state, item, event)
        return
    superseded = event.record_revision is None and event.from_state is None
    if superseded:  # a child was proposed in the same call: the store binds it to the item itself
        require(found.evidence_revision == revision, f"the evidence is at revision {revision}")
    else:
        require(bound, f"the evidence is at revision {revision}")
    require(not item.gates, f"{item.todo_id} waits for {item.gates and item.gates[0]}")
    target = State(found.to_state)
    known = item.state in set(State)
    rule = find_rule(State(item.state), target, signed=True) if known else None
    if rule is None or rule.signers is None:
        fail(f"no row {item.state} -> {target} of two signatures")
    second = standing_signature(state, item) == target and item.signed_role == rule.signers[0]
    signer = rule.signers[1 if second else 0]
    require(event.role == signer, f"the signature of {signer} is due")
    order = "second" if second else "first"
    require(found.order == order, f"this is the {order} signature")
    _check_rule(state, item, event, rule, second=second)
    if second:
        _move_by_two(state, item, event)
        return
    recovered(item)
    item.signed_to, item.signed_role = target, event.role
    item.signed_by, item.signed_revision = event.agent_id, event.revision
    item.signed_touched = item.touched
    item.signatures.append(event.revision)
    leave_lane(state, item)
    free(state, item)


def _declined(state: GoalState, item: ItemState, event: ev.Signed) -> None:
    require(standing_signature(state, item), "there is no first signature to decline")
    require(not item.doomed, "the retirement is the operator's word")
    require(event.signature.disagrees, "a refusal that says so")
    item.signatures.append(event.revision)
    item.declines += 1
    unsign(item)
    free(state, item)


def _check_rule(
    state: GoalState, item: ItemState, event: ev.Signed, rule: Rule, *, second: bool
) -> None:
    decision = state.events.get(item.decided_revision)
    needed = second or event.role == Role.EVALUATOR
    if needed and not isinstance(decision, ev.Decided):
        fail("the decision is missing")
    found = context(state, item, event.at)
    records = dict(found.records)
    if isinstance(decision, ev.Decided):
        records[EventType.DECIDED] = decision.decision
        outcome = decision.decision.outcome
        require(outcome == event.signature.to_state, f"the decision is {outcome}")
    missing = first_missing(
        rule,
        Context(goal=state, item=item, at=event.at, records=records, signature=event.signature),
    )
    require(missing is None, f"{item.state} -> {rule.target} lacks {missing}")


def _move_by_two(state: GoalState, item: ItemState, event: ev.Signed) -> None:
    require(event.to_state == event.signature.to_state, "the state that both signed")
    attempt = state.attempt_of(item)
    decision = state.events[item.decided_revision]
    move(item, event)
    recovered(item)
    item.signatures.append(event.revision)
    reason = event.signature.reason
    if item.state == State.PROMOTED and isinstance(decision, ev.Decided):
        reason = decision.decision.reason
        number = attempt.number if attempt else None
        state.champions.append(
            Champion(event.revision, item.commit, item.hypothesis_id, item.todo_id, number)
        )
        measured = attempt.holdout.measurement if attempt and attempt.holdout else None
        if measured is None and attempt and attempt.evaluation and not state.holdout_required:
            measured = attempt.evaluation.measurement
        if state.contract and target_met(measured, state.contract.evaluation):
            state.target_met = True
        _count_improvement(state, decision.decision.value)
        for other in state.hypothesis_items():
            if other is not item:
                refile(state, other)
    unsign(item)
    free(state, item)
    end_item(state, item, event, reason)


def _count_improvement(state: GoalState, value: float | None) -> None:
    """Count a promotion that beats the best accepted so far, in order of revision."""
    if value is None:
        return
    down = state.contract is not None and (
        state.contract.evaluation.direction == Direction.MINIMIZE
    )
    best = state.best_value
    if best is None or (value < best if down else value > best):
        state.improvements += 1
        state.best_value = value
