"""What a guard may look at: the goal, the item and the records of one call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from contracts import records as rec
from contracts.labels import measurement_problem
from contracts.models import Record
from contracts.replay_state import AttemptState, GoalState, ItemState
from contracts.words import EventType, MetricStatus


@dataclass(frozen=True, slots=True)
class Context:
    """What a guard may look at.

    Attributes:
        goal: The replayed goal.
        item: The replayed item that is to move.
        at: The store's time of the move.
        records: The records of the same call, by event type.
        signature: For rows of two signatures, the one about to be made.
        end_reason: For a retirement by one role, the reason of the `transitioned` event.
        duplicate_of: For a duplicate, the equal hypothesis.
        note: The rationale of the move.
    """

    goal: GoalState
    item: ItemState
    at: datetime
    records: Mapping[EventType, Record] = field(default_factory=dict)
    signature: rec.Signature | None = None
    end_reason: str | None = None
    duplicate_of: str | None = None
    note: str = ""

    def attempt(self) -> AttemptState | None:
        """Give the item's attempt of now."""
        return self.goal.attempt_of(self.item)


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a move is refused: the store's word for it, and the first thing missing."""

    reason: str
    what: str


def start_of(ctx: Context) -> rec.AttemptStart | None:
    """Give the start of an attempt in this call, if there is one."""
    found = ctx.records.get(EventType.ATTEMPT_STARTED)
    return found if isinstance(found, rec.AttemptStart) else None


def evidence_of(ctx: Context) -> rec.Evidence | None:
    """Give the attempt's evidence, if there is one."""
    found = ctx.records.get(EventType.EVIDENCE_RECORDED)
    if isinstance(found, rec.Evidence):
        return found
    attempt = ctx.attempt()
    return attempt.evidence if attempt else None


def evaluation_of(ctx: Context) -> rec.Evaluation | None:
    """Give the attempt's evaluation, if there is one."""
    found = ctx.records.get(EventType.EVALUATION_RECORDED)
    if isinstance(found, rec.Evaluation):
        return found
    attempt = ctx.attempt()
    return attempt.evaluation if attempt else None


def holdout_of(ctx: Context) -> rec.Holdout | None:
    """Give the attempt's held-out record, if there is one."""
    found = ctx.records.get(EventType.HOLDOUT_RECORDED)
    if isinstance(found, rec.Holdout):
        return found
    attempt = ctx.attempt()
    return attempt.holdout if attempt else None


def retry_of(ctx: Context) -> rec.RetryPacket | None:
    """Give the retry packet of this call, if there is one."""
    found = ctx.records.get(EventType.RETRY_RECORDED)
    return found if isinstance(found, rec.RetryPacket) else None


def hypothesis_of(ctx: Context) -> rec.Hypothesis | None:
    """Give the hypothesis added in this call, if there is one."""
    found = ctx.records.get(EventType.HYPOTHESIS_ADDED)
    return found if isinstance(found, rec.Hypothesis) else None


def decision_of(ctx: Context) -> rec.TerminalDecision | None:
    """Give the terminal decision of this call, if there is one."""
    found = ctx.records.get(EventType.DECIDED)
    return found if isinstance(found, rec.TerminalDecision) else None


def holdout_passes(found: rec.Holdout | None, goal: GoalState) -> bool:
    """Tell whether a held-out record is measured, improved by its values, with every check."""
    if found is None or found.measurement is None or goal.contract is None:
        return False
    return (
        found.status == "measured"
        and measurement_problem(found.measurement, goal.contract.evaluation) is None
        and found.measurement.primary_metric_status == MetricStatus.IMPROVED
        and all(check.passed for check in found.checks)
    )


def retries_left(ctx: Context) -> bool:
    """Tell whether the item may be tried once more after an attempt without a score."""
    return ctx.goal.contract is not None and (ctx.item.retries <= ctx.goal.contract.policy.retries)
