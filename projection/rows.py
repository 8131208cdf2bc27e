"""One row per attempt: its numbers, the word for people, and what decided."""

from dataclasses import dataclass
from datetime import datetime

from contracts import records
from contracts.labels import CONTRADICTING
from contracts.replay_state import AttemptState, GoalState, ItemState
from contracts.text import with_interval
from contracts.words import EndReason, EvalStatus, MetricStatus, State, StopReason, Verdict

KEPT, REFUTED, NO_GAIN, RUNNING = "kept", "refuted", "no gain", "running"
REJECTED = "rejected"
_SHORT = {"base_conflict": "conflict", "out_of_memory": "memory", "lease_expired": "lease"}


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt, as every list shows it.

    Attributes:
        dev: The evaluator's dev measurement, if it has a score.
        held: The held-out one.
        against: The paired ratio to the champion of the time, on the dev split.
        result: The word for people: `kept`, `refuted, wrong`, `timeout, 1 left`, ...
        reason: What decided, in one short text.
        log: Name of the log that tells more, where an attempt has no score.
        state: The item's state where this is its attempt of now, else how the attempt ended.
    """

    number: int
    hypothesis_id: str
    todo_id: str
    title: str
    family: str
    dev: records.Spread | None
    held: records.Spread | None
    against: records.Spread | None
    result: str
    reason: str
    state: str
    verdict: str
    commit: str
    base_commit: str
    branch: str
    boundary_clean: bool | None
    started_at: datetime
    replay_of: int | None
    cost_usd: float
    log: str = ""


def scored_spread(found: records.Measurement | None) -> records.Spread | None:
    """Give a measurement's spread where it has a score."""
    if found is None or found.eval_status != EvalStatus.SCORED:
        return None
    return found.spread


def _worse(state: GoalState) -> str:
    evaluation = state.contract.evaluation if state.contract else None
    timed = evaluation and (evaluation.unit in {"x", "s", "ms"} or "speed" in evaluation.metric)
    return "slower" if timed else "worse"


def _tries_before(state: GoalState, attempt: AttemptState, item: ItemState) -> int:
    """Count the item's attempts without a score, up to this one, since the last scored one."""
    count = 0
    for number in item.attempts:
        if number > attempt.number:
            break
        found = state.attempts[number]
        unscored = found.outcome == State.NEEDS_RETRY or found.stop_reason
        count = count + 1 if unscored else 0
    return count


def _unscored_result(state: GoalState, attempt: AttemptState, item: ItemState) -> str:
    reason = str(attempt.stop_reason or "no score")
    word = _SHORT.get(reason, reason.replace("_", " "))
    if item.state == State.RETIRED and item.attempts[-1] == attempt.number:
        return f"{word}, retired"
    limit = state.contract.policy.retries if state.contract else 0
    left = max(0, limit + 1 - _tries_before(state, attempt, item))
    return f"{word}, {left} left"


def _result(state: GoalState, attempt: AttemptState, item: ItemState) -> str:  # noqa: PLR0911
    evaluation = attempt.evaluation
    latest = item.attempts[-1] == attempt.number
    if any(champion.attempt == attempt.number for champion in state.champions):
        return KEPT
    if latest and is_rejected(item):
        return REJECTED
    if attempt.stop_reason or (evaluation and evaluation.verdict == Verdict.UNSCORED):
        return _unscored_result(state, attempt, item)
    if evaluation is None:
        return "waits, dev" if attempt.evidence else RUNNING
    verdict = evaluation.verdict
    if verdict in CONTRADICTING:
        words = {Verdict.REGRESSION: _worse(state), Verdict.CORRECTNESS: "wrong"}
        return f"{REFUTED}, {words.get(verdict, str(verdict))}"
    if verdict == Verdict.FLAT:
        return NO_GAIN
    if not latest:
        return "measured again"
    if item.state == State.RETIRED:
        return _held_out_result(attempt)
    if item.wants_confirm:
        return "to measure again"
    waits = {State.SUPPORTED: "supported", State.PROMOTION_GATE: "at the gate"}
    return waits.get(State(item.state), "supported")


def _held_out_result(attempt: AttemptState) -> str:
    measured = attempt.holdout.measurement if attempt.holdout else None
    if measured is None:
        return "retired"
    refuted = measured.primary_metric_status in {MetricStatus.REGRESSED, MetricStatus.FAILED}
    return f"{REFUTED}, held-out" if refuted else f"{NO_GAIN}, held-out"


def is_rejected(item: ItemState) -> bool:
    """Tell whether a person's no ended the item."""
    return item.state == State.RETIRED and item.end_reason == EndReason.OPERATOR_REJECTED


def rejection(state: GoalState, item: ItemState) -> str:
    """Give the reason of the gate that was rejected."""
    reasons = [
        gate.decision.reason
        for gate in state.gates.values()
        if gate.todo_id == item.todo_id and gate.decision and gate.decision.verdict == "rejected"
    ]
    return reasons[-1] if reasons and reasons[-1] else "a person refused it"


def ending(state: GoalState, item: ItemState) -> str:
    """Say why an item ended, a rejection with its reason; empty while it has not."""
    if is_rejected(item):
        return f"{REJECTED}: {rejection(state, item)}"
    return str(item.end_reason or "")


def crash_cause(attempt: AttemptState) -> str:
    """Say how a measurement that crashed ended, as `crash, exit code 1`; empty if none did."""
    evaluation = attempt.evaluation
    if evaluation is None or evaluation.stop_reason != StopReason.CRASH:
        return ""
    manifest = evaluation.measurement.manifest
    if manifest is None:
        return ""
    if manifest.signal is not None:
        return f"crash, signal {manifest.signal}"
    return f"crash, exit code {manifest.exit_code}" if manifest.exit_code else ""


def _log(attempt: AttemptState) -> str:
    evaluation = attempt.evaluation
    if evaluation is None or evaluation.verdict != Verdict.UNSCORED:
        return ""
    manifest = evaluation.measurement.manifest
    return (manifest.log_ref or "") if manifest else ""


def _reason(state: GoalState, attempt: AttemptState, item: ItemState) -> str:
    evaluation = attempt.evaluation
    if is_rejected(item) and item.attempts[-1] == attempt.number:
        return rejection(state, item)
    if evaluation is None:
        return attempt.retry.detail if attempt.retry else str(attempt.stop_reason or "")
    if cause := crash_cause(attempt):
        return cause
    if evaluation.failure:
        return evaluation.failure
    measured = evaluation.measurement
    if measured.label:
        return measured.label
    gain = measured.ratio or measured.difference
    return with_interval(gain.value, gain.low, gain.high) if gain else ""


def attempt_row(state: GoalState, attempt: AttemptState) -> AttemptRow:
    """Make the row of one attempt."""
    item = state.items[attempt.todo_id]
    hypothesis, evidence, evaluation = item.hypothesis, attempt.evidence, attempt.evaluation
    measured = evaluation.measurement if evaluation else None
    replayed = None
    if attempt.start.replay_of:
        for other in state.attempts.values():
            if other.evidence and other.evidence.code_ref == attempt.start.replay_of:
                replayed = other.number
    boundary = None
    if evidence:
        verdict = evaluation.verdict if evaluation else None
        boundary = evidence.protected_scope_clean and verdict != Verdict.BOUNDARY
    return AttemptRow(
        number=attempt.number,
        hypothesis_id=attempt.hypothesis_id,
        todo_id=attempt.todo_id,
        title=hypothesis.title if hypothesis else "",
        family=hypothesis.mechanism_family if hypothesis else "",
        dev=scored_spread(measured),
        held=scored_spread(attempt.holdout.measurement if attempt.holdout else None),
        against=measured.ratio if measured else None,
        result=_result(state, attempt, item),
        reason=_reason(state, attempt, item),
        state=item.state if item.attempts[-1] == attempt.number else attempt.outcome,
        verdict=str(evaluation.verdict) if evaluation else "",
        commit=evidence.code_ref if evidence else "",
        base_commit=attempt.start.base_commit,
        branch=attempt.start.branch,
        boundary_clean=boundary,
        started_at=attempt.started_at,
        replay_of=replayed,
        cost_usd=attempt.cost_usd,
        log=_log(attempt),
    )
