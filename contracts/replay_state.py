"""What replay knows of a goal: plain values that `contracts.replay` changes and everybody reads.

Names follow the store's item and goal hashes (`lua/10_core.lua`), so that the two can be laid
beside each other; numbers that no event carries (lease length, lapse limit) are not here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from contracts import records
from contracts.contract import ResearchContract
from contracts.declared import DeclaredRole
from contracts.events import AnyEvent
from contracts.words import Action, EndReason, GateKind, Phase, Role, State, StopReason

OPEN, CLOSED = "open", "closed"
"""States of a todo that backs no hypothesis."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One event that breaks a rule; `entry_id` and `type` are empty for one that is missing."""

    revision: int
    stream: str
    entry_id: str
    type: str
    what: str


@dataclass(slots=True)
class AttemptState:
    """One attempt with its records; a revision of 0 means that there is no such record."""

    number: int
    todo_id: str
    hypothesis_id: str
    agent_id: str
    start: records.AttemptStart
    started_revision: int
    started_at: datetime
    ended_at: datetime | None = None
    evidence: records.Evidence | None = None
    evidence_revision: int = 0
    evaluation: records.Evaluation | None = None
    evaluation_revision: int = 0
    holdout: records.Holdout | None = None
    holdout_revision: int = 0
    stop_reason: StopReason | str | None = None
    retry: records.RetryPacket | None = None
    retry_revision: int = 0
    outcome: str = State.ATTEMPT_RUNNING
    cost_usd: float = 0.0


@dataclass(slots=True)
class ItemState:
    """One todo. `touched` is the item's evidence revision, which signatures are bound to."""

    todo_id: str
    kind: str
    state: str
    version: int = 1
    hypothesis_id: str | None = None
    hypothesis: records.Hypothesis | None = None
    title: str = ""
    text: str = ""
    idea: records.Idea | None = None
    added_revision: int = 0
    touched: int = 0
    claimed_by: str = ""
    claim_role: Role | None = None
    incarnation: str = ""
    action: Action | None = None
    fence: int = 0
    lease_until: datetime | None = None
    reserved: bool = False
    in_lane: bool = False
    selected_from: str = ""
    next_attempt: int | None = None
    attempt: int | None = None
    attempts: list[int] = field(default_factory=list)
    base_revision: int = 0
    wants_confirm: str = ""
    confirmations: int = 0
    retries: int = 0
    reworks: int = 0
    unchanged: bool = False
    lapses: int = 0
    recoveries: list[records.Recovery] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    declines: int = 0
    holdouts: int = 0
    evidence_revision: int = 0
    evaluation_revision: int = 0
    holdout_revision: int = 0
    decided_revision: int = 0
    commit: str = ""
    owner_accepted: bool = False
    gates: list[str] = field(default_factory=list)
    doomed: bool = False
    spent_attempt: int | None = None
    signed_to: str = ""
    signed_role: Role | None = None
    signed_by: str = ""
    signed_revision: int = 0
    signed_touched: int = 0
    signatures: list[int] = field(default_factory=list)
    end_reason: EndReason | str | None = None
    ended_revision: int = 0
    reviews: list[int] = field(default_factory=list)
    assessments: list[int] = field(default_factory=list)
    last_moved: datetime | None = None

    @property
    def terminal(self) -> bool:
        """Whether the item has ended."""
        return self.state in {State.PROMOTED, State.RETIRED, CLOSED}


@dataclass(slots=True)
class GateState:
    """An operator gate."""

    gate_id: str
    kind: GateKind
    todo_id: str
    opened_revision: int
    opened_at: datetime
    asked_by: str
    gate: records.Gate
    decision: records.GateDecision | None = None
    decided_revision: int = 0
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class Champion:
    """What was the champion from a revision on; the first is the approved base."""

    revision: int
    commit: str
    hypothesis_id: str | None = None
    todo_id: str | None = None
    attempt: int | None = None


@dataclass(slots=True)
class GoalState:
    """A goal as its events alone tell it."""

    goal_id: str
    revision: int = 0
    events: dict[int, AnyEvent] = field(default_factory=dict)
    contract: ResearchContract | None = None
    contract_hash: str = ""
    approved: bool = False
    created_at: datetime | None = None
    approved_at: datetime | None = None
    last_at: datetime | None = None
    paused: bool = False
    pause_note: str = ""
    source_open: bool = False
    baseline: records.Baseline | None = None
    baseline_revision: int = 0
    champions: list[Champion] = field(default_factory=list)
    target_met: bool = False
    improvements: int = 0
    best_value: float | None = None
    successor: str = ""
    successor_count: int = 0
    owes_successor: tuple[int, str] | None = None
    ideas: int = 0
    idea_count: int = 0
    live: int = 0
    attempts_used: int = 0
    attempts_reserved: int = 0
    attempt_count: int = 0
    lanes: int = 0
    holdouts: int = 0
    cost_micro_usd: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    roster: dict[str, tuple[Role, ...]] = field(default_factory=dict)
    declared: dict[str, DeclaredRole] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    items: dict[str, ItemState] = field(default_factory=dict)
    hypotheses: dict[str, str] = field(default_factory=dict)
    families: dict[str, list[str]] = field(default_factory=dict)
    attempts: dict[int, AttemptState] = field(default_factory=dict)
    gates: dict[str, GateState] = field(default_factory=dict)
    pending: list[AnyEvent] = field(default_factory=list)

    @property
    def champion(self) -> Champion | None:
        """The champion of now; None before the baseline."""
        return self.champions[-1] if self.champions else None

    @property
    def champion_revision(self) -> int:
        """The revision at which the champion of now became it; 0 before the baseline."""
        return self.champions[-1].revision if self.champions else 0

    @property
    def holdout_required(self) -> bool:
        """Whether the contract has a held-out split."""
        return self.contract is not None and self.contract.evaluation.holdout is not None

    def hypothesis_items(self) -> Iterator[ItemState]:
        """Give the items that back a hypothesis, in order of their ids."""
        for todo_id in self.hypotheses.values():
            yield self.items[todo_id]

    def attempt_of(self, item: ItemState) -> AttemptState | None:
        """Give the item's attempt of now."""
        return self.attempts.get(item.attempt) if item.attempt is not None else None


def is_satisfied(state: GoalState) -> bool:
    """Tell whether the target is met, by its value and by the improvements asked for."""
    required = state.contract.strategy.required_holdout_improvement_count if state.contract else 0
    return state.target_met and state.improvements >= required


def _is_baseless(state: GoalState) -> bool:
    """Tell whether a person refused the baseline, so that nothing can be compared."""
    todo = state.items.get("todo_baseline")
    return not state.baseline_revision and todo is not None and todo.state == CLOSED


def is_closed(state: GoalState, at: datetime) -> bool:
    """Tell whether the goal takes no more attempts at a time of the store's clock."""
    contract = state.contract
    if contract is None:
        return False
    policy = contract.policy
    limit_usd = policy.max_cost_usd
    late = (
        policy.deadline_s > 0
        and state.approved_at is not None
        and at >= state.approved_at + timedelta(seconds=policy.deadline_s)
    )
    return (
        _is_baseless(state)
        or (contract.strategy.stop == "target" and is_satisfied(state))
        or state.attempts_used >= policy.max_attempts
        or late
        or (limit_usd > 0 and state.cost_micro_usd >= round(limit_usd * 1_000_000))
    )


def has_room(state: GoalState, at: datetime) -> bool:
    """Tell whether one more attempt may be reserved."""
    if state.contract is None or is_closed(state, at):
        return False
    policy = state.contract.policy
    return (
        state.lanes < policy.max_parallel
        and state.attempts_used + state.attempts_reserved < policy.max_attempts
    )


def phase_of(state: GoalState, at: datetime) -> Phase | None:
    """Derive the phase at a time of the store's clock; None before approval."""
    if not state.approved:
        return None
    if not state.baseline_revision:
        over = _is_baseless(state) and state.live == 0
        return Phase.ESCALATE if over else Phase.BASELINE
    empty = not state.source_open and not state.successor and not state.ideas
    if state.live == 0 and (is_closed(state, at) or empty):
        return Phase.DONE if is_satisfied(state) else Phase.ESCALATE
    return Phase.ITERATE


def standing_signature(state: GoalState, item: ItemState) -> str:
    """Give the state that a valid first signature asks for, or nothing.

    It is void once the item was touched or, for a promotion, the champion moved.
    """
    if not item.signed_to or item.signed_touched != item.touched:
        return ""
    if item.signed_to == State.PROMOTED and state.champion_revision > item.signed_revision:
        return ""
    return item.signed_to


_SIMPLE_CLASS = {
    State.CONTRADICTED: "settle",
    State.EVIDENCE_RECORDED: "evaluate",
    State.EVALUATED: "classify",
    State.PROMOTION_GATE: "sign",
}


def ready_class(state: GoalState, item: ItemState) -> str:
    """Give the ready set an item belongs to, as the store files it; empty for none."""
    if (
        item.claimed_by
        or item.terminal
        or item.state in {State.FRONTIER_SELECTED, State.ATTEMPT_RUNNING}
    ):
        return ""
    if item.gates:
        return "blocked"
    if item.kind != "hypothesis":
        return item.kind
    signed = standing_signature(state, item)
    if signed == State.RETIRED:
        return "cosign_proposer" if item.signed_role == Role.EVALUATOR else "cosign_evaluator"
    if signed == State.PROMOTED:
        return "cosign_curator"
    return _class_by_state(state, item)


def _class_by_state(state: GoalState, item: ItemState) -> str:
    if item.state == State.HYPOTHESIS_PROPOSED:
        return "settle" if item.doomed else "start"
    if item.state == State.NEEDS_RETRY:
        retries = state.contract.policy.retries if state.contract else 0
        return "settle" if item.doomed or item.retries > retries else "retry"
    if item.state == State.SUPPORTED:
        return "confirm" if item.wants_confirm and not item.doomed else "holdout"
    return _SIMPLE_CLASS.get(State(item.state), "")
