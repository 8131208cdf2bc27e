"""The closed vocabularies of labmates: states, roles, actions, reasons.

Plain `StrEnum`s without dependencies, so that the cold path may import them.
"""

from enum import StrEnum


class State(StrEnum):
    """The twelve durable states of an item."""

    CONTRACT_READY = "contract_ready"
    HYPOTHESIS_PROPOSED = "hypothesis_proposed"
    FRONTIER_SELECTED = "frontier_selected"
    ATTEMPT_RUNNING = "attempt_running"
    EVIDENCE_RECORDED = "evidence_recorded"
    EVALUATED = "evaluated"
    SUPPORTED = "supported"
    NEEDS_RETRY = "needs_retry"
    CONTRADICTED = "contradicted"
    PROMOTION_GATE = "promotion_gate"
    PROMOTED = "promoted"
    RETIRED = "retired"


TERMINAL = (State.PROMOTED, State.RETIRED)


class Role(StrEnum):
    """The four roles."""

    CURATOR = "curator"
    PROPOSER = "proposer"
    EXECUTOR = "executor"
    EVALUATOR = "evaluator"


class Writer(StrEnum):
    """Who wrote an event: a role, a person, or the selection itself."""

    CURATOR = "curator"
    PROPOSER = "proposer"
    EXECUTOR = "executor"
    EVALUATOR = "evaluator"
    OPERATOR = "operator"
    QUOTA = "quota"


class Stream(StrEnum):
    """The five append-only streams of a goal."""

    CURATOR = "curator"
    PROPOSER = "proposer"
    EXECUTOR = "executor"
    EVALUATOR = "evaluator"
    OPERATOR = "operator"


CAPABILITY_TOKENS = {
    Role.CURATOR: "research_curator",
    Role.PROPOSER: "hypothesis_proposer",
    Role.EXECUTOR: "research_executor",
    Role.EVALUATOR: "evaluator_promoter",
}


class TodoKind(StrEnum):
    """What a todo backs."""

    HYPOTHESIS = "hypothesis"
    BASELINE = "baseline"
    PROPOSE = "propose"
    CONTRACT = "contract"
    GATE = "gate"
    COSIGN = "cosign"
    SUCCESSOR = "successor"
    REVIEW = "review"
    IDEA = "idea"


class HypothesisStatus(StrEnum):
    """A view of the durable states, derived, never stored."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    RUNNING = "running"
    NEEDS_RETRY = "needs_retry"
    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    PROMOTED = "promoted"
    RETIRED = "retired"


STATUS_OF_STATE = {
    State.HYPOTHESIS_PROPOSED: HypothesisStatus.PROPOSED,
    State.FRONTIER_SELECTED: HypothesisStatus.ACTIVE,
    State.ATTEMPT_RUNNING: HypothesisStatus.RUNNING,
    State.EVIDENCE_RECORDED: HypothesisStatus.RUNNING,
    State.EVALUATED: HypothesisStatus.RUNNING,
    State.NEEDS_RETRY: HypothesisStatus.NEEDS_RETRY,
    State.SUPPORTED: HypothesisStatus.SUPPORTED,
    State.PROMOTION_GATE: HypothesisStatus.SUPPORTED,
    State.CONTRADICTED: HypothesisStatus.CONTRADICTED,
    State.PROMOTED: HypothesisStatus.PROMOTED,
    State.RETIRED: HypothesisStatus.RETIRED,
}


class Action(StrEnum):
    """What a claim allows its holder to do."""

    MEASURE_BASELINE = "measure_baseline"
    PROPOSE = "propose"
    REPROPOSE_OR_RETIRE = "repropose_or_retire"
    RESUME = "resume"
    CONFIRM = "confirm"
    SELECT = "select"
    START = "start"
    EVALUATE = "evaluate"
    CLASSIFY = "classify"
    MEASURE_HOLDOUT = "measure_holdout"
    SIGN = "sign"
    COSIGN = "cosign"


class Reason(StrEnum):
    """Why `quota should-run` says yes or no."""

    READY = "ready"
    RESUME_CLAIM = "resume_claim"
    FRONTIER_EMPTY = "frontier_empty"
    BLOCKED_BY_GATE = "blocked_by_gate"
    BUDGET_EXHAUSTED = "budget_exhausted"
    PARALLEL_LIMIT = "parallel_limit"
    GOAL_PAUSED = "goal_paused"
    GOAL_DONE = "goal_done"
    GOAL_ESCALATED = "goal_escalated"
    CONTRACT_UNAPPROVED = "contract_unapproved"
    LANE_TAKEN_OVER = "lane_taken_over"
    AGENT_UNKNOWN = "agent_unknown"
    ROLE_MISMATCH = "role_mismatch"
    COOLING_DOWN = "cooling_down"
    BASELINE_MISSING = "baseline_missing"


class Phase(StrEnum):
    """The phase of a goal, derived from recorded numbers alone."""

    BASELINE = "baseline"
    ITERATE = "iterate"
    DONE = "done"
    ESCALATE = "escalate"


class StopReason(StrEnum):
    """Why an attempt ended without a score."""

    TIMEOUT = "timeout"
    SILENT = "silent"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    MAX_TURNS = "max_turns"
    PARSE_ERROR = "parse_error"
    NO_CHANGE = "no_change"
    HOOK_BLOCKED = "hook_blocked"
    BASE_CONFLICT = "base_conflict"
    GUARD_REWORK = "guard_rework"
    DRIVER_ERROR = "driver_error"
    BUDGET = "budget"
    LEASE_EXPIRED = "lease_expired"
    OPERATOR_TAKEOVER = "operator_takeover"


class EndReason(StrEnum):
    """Why an item ended: the reasons of a terminal decision."""

    HOLDOUT_VALIDATED = "holdout_validated"
    DEV_VALIDATED = "dev_validated"
    CONTRADICTED = "contradicted"
    DUPLICATE = "duplicate"
    OPERATOR_REJECTED = "operator_rejected"
    RETRY_EXHAUSTED = "retry_exhausted"
    SUPERSEDED = "superseded"
    NO_MEASURABLE_GAIN = "no_measurable_gain"
    NO_FOLLOW_UP = "no_follow_up"


class Split(StrEnum):
    """Which data a number comes from."""

    DEV = "dev"
    HOLDOUT = "holdout"


class Direction(StrEnum):
    """Whether more or less of the metric is better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class MetricStatus(StrEnum):
    """The label of a measurement; computed from the value, never taken on trust."""

    IMPROVED = "improved"
    FLAT = "flat"
    REGRESSED = "regressed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class EvalStatus(StrEnum):
    """Whether an evaluation gave a score."""

    SCORED = "scored"
    FAILED_TO_RUN = "failed_to_run"
    GUARDRAIL_FAILED = "guardrail_failed"
    INCONCLUSIVE = "inconclusive"


class FindingStatus(StrEnum):
    """What decision and peer review say together; derived on every read, never stored."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    TENTATIVE = "tentative"


class FailureKind(StrEnum):
    """Why evidence is negative, or gives no score."""

    DATA_OR_MEASUREMENT_GAP = "data_or_measurement_gap"
    GUARDRAIL_OR_PROTECTED_BOUNDARY = "guardrail_or_protected_boundary"
    MECHANISM_CONTRADICTED = "mechanism_contradicted"
    NOVELTY = "novelty"
    OVERFIT_OR_NONREPLICATION = "overfit_or_nonreplication"
    RETRY_EXHAUSTED = "retry_exhausted"
    UNRECOVERABLE_DATA_GAP = "unrecoverable_data_gap"


class Verdict(StrEnum):
    """What an evaluation found; each has its way out of `evaluated`."""

    IMPROVED = "improved"
    FLAT = "flat"
    REGRESSION = "regression"
    CORRECTNESS = "correctness"
    GUARD = "guard"
    BOUNDARY = "boundary"
    NOVELTY = "novelty"
    UNSCORED = "unscored"


class GateKind(StrEnum):
    """What a person is asked to decide."""

    OWNER = "owner"
    MERGE = "merge"
    PUBLICATION = "publication"
    POISON = "poison"
    DISAGREEMENT = "disagreement"


class EventType(StrEnum):
    """Every event there is; the table is closed."""

    GOAL_CREATED = "goal_created"
    CONTRACT_PROPOSED = "contract_proposed"
    BOUNDARY_NOTED = "boundary_noted"
    GATE_OPENED = "gate_opened"
    SIGNED = "signed"
    HYPOTHESIS_ADDED = "hypothesis_added"
    ASSESSED = "assessed"
    TRANSITIONED = "transitioned"
    SUCCESSOR_ADDED = "successor_added"
    ATTEMPT_STARTED = "attempt_started"
    EVIDENCE_RECORDED = "evidence_recorded"
    RETRY_RECORDED = "retry_recorded"
    BASELINE_RECORDED = "baseline_recorded"
    CALIBRATION_RECORDED = "calibration_recorded"
    HOLDOUT_RECORDED = "holdout_recorded"
    EVALUATION_RECORDED = "evaluation_recorded"
    STRATEGY_CHANGED = "strategy_changed"
    DECIDED = "decided"
    APPROVED = "approved"
    AGENT_REGISTERED = "agent_registered"
    GATE_DECIDED = "gate_decided"
    PAUSED = "paused"
    RESUMED = "resumed"
    TAKEN_OVER = "taken_over"
    HANDED_BACK = "handed_back"
    TODO_ADDED = "todo_added"
    CLAIMED = "claimed"
    SELECTED = "selected"
    RELEASED = "released"
    LEASE_EXPIRED = "lease_expired"
    STALE_RESULT_REJECTED = "stale_result_rejected"
    SPENT = "spent"
    REVIEWED = "reviewed"
    LOOP_RECORDED = "loop_recorded"


_ANY_ROLE = (
    EventType.CLAIMED,
    EventType.SELECTED,
    EventType.RELEASED,
    EventType.LEASE_EXPIRED,
    EventType.STALE_RESULT_REJECTED,
    EventType.SPENT,
    EventType.REVIEWED,
    EventType.GATE_OPENED,
)

# Which event may stand in which stream. `gate_opened` stands in the proposer's and the executor's
# stream only as the selection's own (kind `poison` or `disagreement`). `successor_added` is the word of
# whichever role ended the cycle.
STREAM_EVENTS: dict[Stream, tuple[EventType, ...]] = {
    Stream.CURATOR: (
        EventType.GOAL_CREATED,
        EventType.CONTRACT_PROPOSED,
        EventType.BOUNDARY_NOTED,
        EventType.SIGNED,
        EventType.SUCCESSOR_ADDED,
        *_ANY_ROLE,
    ),
    Stream.PROPOSER: (
        EventType.HYPOTHESIS_ADDED,
        EventType.ASSESSED,
        EventType.TRANSITIONED,
        EventType.SIGNED,
        EventType.SUCCESSOR_ADDED,
        *_ANY_ROLE,
    ),
    Stream.EXECUTOR: (
        EventType.ATTEMPT_STARTED,
        EventType.EVIDENCE_RECORDED,
        EventType.RETRY_RECORDED,
        EventType.TRANSITIONED,
        *_ANY_ROLE,
    ),
    Stream.EVALUATOR: (
        EventType.BASELINE_RECORDED,
        EventType.CALIBRATION_RECORDED,
        EventType.HOLDOUT_RECORDED,
        EventType.EVALUATION_RECORDED,
        EventType.STRATEGY_CHANGED,
        EventType.TRANSITIONED,
        EventType.SIGNED,
        EventType.DECIDED,
        EventType.SUCCESSOR_ADDED,
        EventType.LOOP_RECORDED,
        *_ANY_ROLE,
    ),
    Stream.OPERATOR: (
        EventType.APPROVED,
        EventType.AGENT_REGISTERED,
        EventType.GATE_DECIDED,
        EventType.GATE_OPENED,
        EventType.RELEASED,
        EventType.PAUSED,
        EventType.RESUMED,
        EventType.TAKEN_OVER,
        EventType.HANDED_BACK,
        EventType.TODO_ADDED,
    ),
}
