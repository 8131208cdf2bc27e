"""One view model for status, live view, report and page: pure over the replayed goal.

Numbers come with their spread or not at all; a row's result word is the one that people read, its
state and reason are those of the records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from contracts import records
from contracts.labels import CONTRADICTING
from contracts.replay_state import AttemptState, GoalState, phase_of
from contracts.store.reader import Reader
from contracts.words import (
    Direction,
    MetricStatus,
    Phase,
    State,
)
from projection.reading import replay_goal
from projection.rows import AttemptRow, attempt_row, scored_spread


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One agent of the roster; `doing` and `waits_for` are what the lane itself last said."""

    agent_id: str
    roles: tuple[str, ...]
    todo_id: str
    action: str
    state: str
    since: datetime | None
    doing: str
    waits_for: str
    last: str


@dataclass(frozen=True, slots=True)
class BudgetView:
    """What is spent, and of how much; a limit of None or 0 is none."""

    attempts_used: int
    attempts_reserved: int
    attempts_limit: int
    lanes_used: int
    lanes_limit: int
    cost_usd: float
    cost_limit_usd: float
    holdouts_used: int
    holdouts_limit: int


@dataclass(frozen=True, slots=True)
class GateView:
    """A gate that waits for a person."""

    gate_id: str
    kind: str
    todo_id: str
    hypothesis_id: str
    question: str
    opened_at: datetime
    opened_revision: int


@dataclass(frozen=True, slots=True)
class Best:
    """The best accepted held-out (or dev) number, and whose it is."""

    spread: records.Spread
    hypothesis_id: str
    title: str
    attempt: int
    commit: str


@dataclass(frozen=True, slots=True)
class View:
    """A goal at one revision, for people."""

    goal_id: str
    revision: int
    phase: Phase | None
    objective: str
    metric: str
    unit: str
    direction: Direction
    target: float | None
    target_met: bool
    min_gain: float
    paused: bool
    pause_note: str
    started_at: datetime | None
    last_at: datetime | None
    live: int
    counts: Mapping[str, int]
    best: Best | None
    decided_on: str
    champion_commit: str
    champion_hypothesis_id: str | None
    attempts: tuple[AttemptRow, ...]
    lanes: tuple[LaneRow, ...]
    budget: BudgetView
    gates: tuple[GateView, ...]
    improvements: int
    improvements_required: int = 0


def is_better(state: GoalState, value: float, than: float | None) -> bool:
    """Compare two values in the contract's direction; anything is better than none."""
    if than is None:
        return True
    down = state.contract is not None and state.contract.evaluation.direction == Direction.MINIMIZE
    return value < than if down else value > than


def promoted_attempts(state: GoalState) -> list[AttemptState]:
    """Give the attempts that were promoted, in order of their promotion."""
    return [
        state.attempts[champion.attempt]
        for champion in state.champions
        if champion.attempt is not None
    ]


def deciding_measurement(state: GoalState, attempt: AttemptState) -> records.Measurement | None:
    """Give the measurement that an attempt's promotion rests on."""
    if state.holdout_required:
        return attempt.holdout.measurement if attempt.holdout else None
    return attempt.evaluation.measurement if attempt.evaluation else None


def best_accepted(state: GoalState) -> Best | None:
    """Give the best accepted number of the split that decides."""
    best: Best | None = None
    for attempt in promoted_attempts(state):
        spread = scored_spread(deciding_measurement(state, attempt))
        if spread and is_better(state, spread.value, best.spread.value if best else None):
            title = title_of(state, attempt.hypothesis_id)
            commit = attempt.evidence.code_ref if attempt.evidence else ""
            best = Best(spread, attempt.hypothesis_id, title, attempt.number, commit)
    return best


def improvements(state: GoalState) -> int:
    """Count accepted improvements, each against the best accepted so far."""
    count, best = 0, None
    for attempt in promoted_attempts(state):
        spread = scored_spread(deciding_measurement(state, attempt))
        if spread is not None and is_better(state, spread.value, best):
            count, best = count + 1, spread.value
    return count


def title_of(state: GoalState, hypothesis_id: str) -> str:
    """Give a hypothesis' title."""
    item = state.items.get(state.hypotheses.get(hypothesis_id, ""))
    return item.hypothesis.title if item and item.hypothesis else ""


def _lane_rows(state: GoalState, said: Mapping[str, Mapping[str, str]]) -> tuple[LaneRow, ...]:
    rows = []
    last: dict[str, str] = {}
    for revision, event in state.events.items():
        if event.role is not None:
            last[event.agent_id] = f"rev {revision} {event.type}"
    for agent_id, held in sorted(state.roster.items()):
        declared = state.declared.get(agent_id)
        roles = (declared.name,) if declared else tuple(map(str, held))
        if not roles:
            continue
        lane = said.get(agent_id, {})
        todo_id = state.claims.get(agent_id, "")
        item = state.items.get(todo_id)
        since = lane.get("since_ms", "")
        rows.append(
            LaneRow(
                agent_id=agent_id,
                roles=roles,
                todo_id=todo_id,
                action=str(item.action or "") if item else "",
                state=lane.get("state") or ("working" if todo_id else "waiting"),
                since=_time(since) if since.isdigit() else None,
                doing=lane.get("doing", ""),
                waits_for=lane.get("waits_for", ""),
                last=last.get(agent_id, ""),
            )
        )
    return tuple(rows)


def _time(milliseconds: str) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, tz=UTC)


def counts_of(state: GoalState) -> dict[str, int]:
    """Count what status, graph and report give alike."""
    items = list(state.hypothesis_items())
    negative = sum(
        1
        for attempt in state.attempts.values()
        if (attempt.evaluation and attempt.evaluation.verdict in CONTRADICTING)
        or (
            attempt.holdout
            and attempt.holdout.measurement
            and attempt.holdout.measurement.primary_metric_status
            in {MetricStatus.REGRESSED, MetricStatus.FAILED}
        )
    )
    evidence = sum(
        bool(attempt.evidence) + bool(attempt.holdout) for attempt in state.attempts.values()
    )
    return {
        "hypotheses": len(items),
        "evidence_events": evidence,
        "negative_evidence": negative,
        "needs_retry": sum(item.state == State.NEEDS_RETRY for item in items),
        "attempts": len(state.attempts),
        "promoted": sum(item.state == State.PROMOTED for item in items),
        "retired": sum(item.state == State.RETIRED for item in items),
    }


def view_of(
    state: GoalState, now: datetime, *, lanes: Mapping[str, Mapping[str, str]] | None = None
) -> View:
    """Make the view of a replayed goal.

    Args:
        state: The goal.
        now: The store's clock; the phase of a goal with a deadline depends on it.
        lanes: What each lane says of itself (`keys.lane`), by agent; may be empty or old.
    """
    contract, champion = state.contract, state.champion
    evaluation = contract.evaluation if contract else None
    policy = contract.policy if contract else None
    gates = tuple(
        GateView(
            gate.gate_id,
            str(gate.kind),
            gate.todo_id,
            state.items[gate.todo_id].hypothesis_id or "",
            gate.gate.question,
            gate.opened_at,
            gate.opened_revision,
        )
        for gate in state.gates.values()
        if gate.decision is None
    )
    strategy = contract.strategy if contract else None
    return View(
        goal_id=state.goal_id,
        revision=state.revision,
        phase=phase_of(state, now),
        objective=contract.context.objective if contract else "",
        metric=evaluation.metric if evaluation else "",
        unit=evaluation.unit if evaluation else "",
        direction=evaluation.direction if evaluation else Direction.MAXIMIZE,
        target=evaluation.target if evaluation else None,
        target_met=state.target_met,
        min_gain=evaluation.min_gain if evaluation else 0.0,
        paused=state.paused,
        pause_note=state.pause_note,
        started_at=state.created_at,
        last_at=state.last_at,
        live=state.live,
        counts=counts_of(state),
        best=best_accepted(state),
        decided_on="held-out" if state.holdout_required else "dev",
        champion_commit=champion.commit if champion else "",
        champion_hypothesis_id=champion.hypothesis_id if champion else None,
        attempts=tuple(attempt_row(state, state.attempts[n]) for n in sorted(state.attempts)),
        lanes=_lane_rows(state, lanes or {}),
        budget=BudgetView(
            attempts_used=state.attempts_used,
            attempts_reserved=state.attempts_reserved,
            attempts_limit=policy.max_attempts if policy else 0,
            lanes_used=state.lanes,
            lanes_limit=policy.max_parallel if policy else 0,
            cost_usd=state.cost_micro_usd / 1_000_000,
            cost_limit_usd=policy.max_cost_usd if policy else 0.0,
            holdouts_used=state.holdouts,
            holdouts_limit=contract.holdout_limit if contract else 0,
        ),
        gates=gates,
        improvements=improvements(state),
        improvements_required=strategy.required_holdout_improvement_count if strategy else 0,
    )


def build_view(reader: Reader) -> View:
    """Read, replay and view a goal.

    Raises:
        UsageError: There is no such goal.
    """
    found = replay_goal(reader)
    said = {agent_id: reader.lane(agent_id) for agent_id in found.state.roster}
    return view_of(found.state, found.now, lanes=said)
