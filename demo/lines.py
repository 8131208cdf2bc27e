"""One line an event: what a run shows where there is no terminal, and the live view's last lines."""

from contracts import events as ev
from contracts.labels import CONTRADICTING
from contracts.records import Measurement, Spread
from contracts.replay_state import GoalState, ItemState
from contracts.text import inert, score, with_interval
from contracts.words import EndReason, State
from demo.watch import clock

DEMO_OPERATOR = "operator:demo"
"""Who approves a demo's contract: no person, and the record says so."""

_ENDS = {
    EndReason.NO_MEASURABLE_GAIN: "no gain",
    EndReason.RETRY_EXHAUSTED: "retry exhausted",
    EndReason.OPERATOR_REJECTED: "rejected by a person",
    EndReason.NO_FOLLOW_UP: "not tried any more",
}


def event_line(state: GoalState, event: ev.AnyEvent) -> str | None:
    """Give one line for an event that was just applied to `state`; None for what only machines need."""
    said = sentence(state, event)
    if said is None:
        return None
    who = "operator" if event.agent_id.startswith("operator:") else event.agent_id
    return inert(f"{clock(state.created_at, event.at)}  {who:<11}  {said}")


def spread(found: Spread | None) -> str:
    """Give a number with its interval, or `none`."""
    return "none" if found is None else with_interval(found.value, found.low, found.high)


def sentence(state: GoalState, event: ev.AnyEvent) -> str | None:  # noqa: PLR0911, PLR0912 - a table
    """Say what an event means, in the words of the live view."""
    item = state.items.get(event.todo_id or "")
    title = item.hypothesis.title if item and item.hypothesis else ""
    match event:
        case ev.ContractProposed():
            return f"proposed the contract {event.contract_hash[:8]}"
        case ev.Approved():
            own = " (the demo approves its own contract)"
            mark = own if event.agent_id == DEMO_OPERATOR else ""
            return f"approved {event.approval.contract_hash[:8]}{mark}"
        case ev.BaselineRecorded():
            return f"recorded the baseline: {_baseline(event)}"
        case ev.HypothesisAdded():
            return f"proposed {event.hypothesis_id}  {event.hypothesis.title}"
        case ev.AttemptStarted():
            return f"started attempt {event.attempt_number} of {event.hypothesis_id}{_again(event)}"
        case ev.RetryRecorded():
            return f"attempt {event.retry.attempt}: needs_retry, {event.retry.stop_reason}"
        case ev.EvaluationRecorded():
            return _evaluated(event, title)
        case ev.HoldoutRecorded():
            measured = event.holdout.measurement
            if measured is None:
                return None
            return f"attempt {event.holdout.attempt} held-out {_number(measured)}"
        case ev.Transitioned() if event.to_state == State.CONTRADICTED and item:
            return f"contradicted {event.hypothesis_id}: {_why_contradicted(state, item)}"
        case ev.Signed() if item:
            return _signed(state, event, item)
        case ev.GateOpened():
            return f"{event.gate_id} waits for a person: labmates gate show {event.gate_id}"
        case ev.GateDecided():
            return f"{event.gate_id} is {event.decision.verdict}"
        case ev.Paused():
            return "paused: no new claims; labmates resume"
        case ev.Resumed():
            return "resumed"
        case ev.LeaseExpired():
            return f"a lease on {event.hypothesis_id or event.todo_id} ended; it is free again"
        case _:
            return None


def _baseline(event: ev.BaselineRecorded) -> str:
    dev, held = event.baseline.dev, event.baseline.holdout
    first = score(dev.value)
    if held is None:
        return f"{first} on dev"
    second = score(held.value)
    return f"{first} on both splits" if first == second else f"dev {first}, held-out {second}"


def _again(event: ev.AttemptStarted) -> str:
    if event.start.replay_of:
        return ", again: the champion has moved"
    return ", again: to be sure" if event.start.confirmation else ""


def _number(measured: Measurement) -> str:
    if measured.value is None:
        return f"none: {measured.label or measured.eval_status}"
    return spread(measured.spread) if measured.spread else score(measured.value)


def _evaluated(event: ev.EvaluationRecorded, title: str) -> str | None:
    found = event.evaluation
    if found.verdict in CONTRADICTING:
        return None  # the transition that follows says it with its reason
    if found.stop_reason:
        return f"attempt {found.attempt} dev none: {found.stop_reason}"
    return f"attempt {found.attempt} dev {_number(found.measurement)}  {title}"


def _why_contradicted(state: GoalState, item: ItemState) -> str:
    attempt = state.attempt_of(item) or state.attempts.get(item.attempts[-1])
    found = attempt.evaluation if attempt else None
    if found is None:
        return "held-out"
    if found.measurement.spread and found.verdict in CONTRADICTING:
        return f"{found.verdict}, dev {_number(found.measurement)}"
    if found.verdict in CONTRADICTING:
        why = found.failure or found.measurement.label or "no score"
        return f"{found.verdict}, {why.replace(': is protected', '')}"
    held = attempt.holdout.measurement if attempt and attempt.holdout else None
    return f"held-out {_number(held)}" if held else str(found.verdict)


def _signed(state: GoalState, event: ev.Signed, item: ItemState) -> str | None:
    name, signature = event.hypothesis_id, event.signature
    if signature.disagrees:
        return f"disagrees: {name} is not to be {signature.to_state}"
    if state.champions and state.champions[-1].revision == event.revision:
        return f"promoted {name}, champion {_champion_value(state, item)}"
    if item.ended_revision == event.revision:
        reason = str(item.end_reason or signature.reason)
        return f"{item.state} {name}: {_ENDS.get(signature.reason, reason)}{_gain(state, item)}"
    return f"signed: promote {name}" if signature.to_state == "promoted" else None


def _champion_value(state: GoalState, item: ItemState) -> str:
    attempt = state.attempt_of(item) or state.attempts[item.attempts[-1]]
    unit = state.contract.evaluation.unit if state.contract else ""
    held = attempt.holdout.measurement if attempt.holdout else None
    dev = attempt.evaluation.measurement if attempt.evaluation else None
    measured = held if state.holdout_required else dev
    return score(measured.value if measured else None, unit)


def _gain(state: GoalState, item: ItemState) -> str:
    if item.end_reason != EndReason.NO_MEASURABLE_GAIN or not item.attempts:
        return ""
    attempt = state.attempts[item.attempts[-1]]
    ratio = attempt.evaluation.measurement.ratio if attempt.evaluation else None
    return f", {spread(ratio)}" if ratio else ""
