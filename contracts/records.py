"""The records that events carry and that read models give out (`design/records.md`)."""

from typing import Any, Literal

from pydantic import Field, model_validator

from contracts.declared import DeclaredRole
from contracts.models import Number, Record, UtcTime
from contracts.words import (
    Direction,
    EndReason,
    EvalStatus,
    FailureKind,
    GateKind,
    MetricStatus,
    Phase,
    Role,
    Split,
    StopReason,
    TodoKind,
    Verdict,
)


class Check(Record):
    """A number against an expectation."""

    name: str
    actual: str | int | float | bool | None
    expected: str | int | float | bool | None
    passed: bool = Field(alias="pass")

    model_config = Record.model_config | {"populate_by_name": True, "serialize_by_alias": True}


class Metric(Record):
    """The primary metric with its value, if there is one."""

    name: str
    value: Number | None = None
    direction: Direction


class Spread(Record):
    """A median with the interval that holds it; `level` is the interval's real coverage."""

    value: Number
    low: Number
    high: Number
    n: int = Field(ge=1)
    level: Number


class ProcessManifest(Record):
    """`process_manifest_v0`: how one child process ran."""

    schema_version: Literal["process_manifest_v0"] = "process_manifest_v0"
    argv: tuple[str, ...]
    commit: str | None = None
    tree: str | None = None
    started_at: UtcTime
    duration_s: Number
    exit_code: int | None = None
    signal: int | None = None
    ended_by: str
    resource_class: str = "cpu"
    output_bytes: int = 0
    leftovers: tuple[str, ...] = ()
    log_ref: str | None = None
    runs: int = 1


class Hypothesis(Record):
    """`research_hypothesis_v0` as it is added (status and claim are derived)."""

    schema_version: Literal["research_hypothesis_v0"] = "research_hypothesis_v0"
    title: str = Field(min_length=1, max_length=48)
    hypothesis: str = Field(min_length=1, max_length=8000)
    mechanism_family: str = Field(min_length=1, max_length=60)
    parent_hypothesis_id: str | None = None
    cites_negative: tuple[str, ...] = ()
    source: str = "person"
    source_refs: tuple[str, ...] = ()
    grounding_refs: tuple[str, ...] = ()
    no_grounding_reason: str | None = None
    novelty_audit_ref: str | None = None
    rationale: str = ""
    expected_delta: str = ""
    confidence: Number | None = Field(default=None, ge=0, le=1)
    frontier_rank: Number
    rank_reason: str = ""
    driver: str
    change_ref: str | None = None
    queue_line: int | None = None

    @model_validator(mode="after")
    def _grounded(self) -> "Hypothesis":
        if not self.grounding_refs and not self.no_grounding_reason:
            msg = "grounding_refs or a no_grounding_reason must be there"
            raise ValueError(msg)
        return self


class AttemptStart(Record):
    """The boundary in which an attempt runs."""

    branch: str
    base_commit: str
    base_revision: int = Field(ge=0, description="revision at which the base became champion")
    worktree: str = Field(description="relative to LABMATES_HOME")
    scope_sha256: str
    confirmation: Literal["noise", "champion_moved"] | None = None
    replay_of: str | None = None


class Evidence(Record):
    """`research_evidence_event_v0` of an attempt: what was made, and its boundary facts."""

    schema_version: Literal["research_evidence_event_v0"] = "research_evidence_event_v0"
    attempt: int = Field(ge=1)
    split: Split
    metric: Metric
    baseline_metric: Number | None = None
    primary_metric_status: MetricStatus
    eval_status: EvalStatus
    code_ref: str = Field(description="commit")
    branch: str
    artifact_refs: tuple[str, ...] = ()
    changed_files: tuple[str, ...] = ()
    insertions: int = 0
    deletions: int = 0
    scope_violations: tuple[str, ...] = ()
    protected_scope_clean: bool
    raw_logs_recorded: bool
    private_artifacts_recorded: bool
    self_reported: Number | None = None
    manifest: ProcessManifest
    cost_usd: Number = 0.0
    summary: str = ""


class RetryPacket(Record):
    """`retry_packet_v0`: why an attempt has no result, and from where to go on."""

    schema_version: Literal["retry_packet_v0"] = "retry_packet_v0"
    attempt: int = Field(ge=0)
    stop_reason: StopReason
    retry_reason: str = ""
    resumable_ref: str | None = None
    cost_usd: Number = 0.0
    detail: str = ""

    @model_validator(mode="after")
    def _bounded(self) -> "RetryPacket":
        if not self.retry_reason and not self.resumable_ref:
            msg = "a resumable_ref or a retry_reason must be there"
            raise ValueError(msg)
        return self


class Samples(Record):
    """The rounds of one measurement; `seeds` are recorded after they were used."""

    champion: tuple[Number, ...] = ()
    candidate: tuple[Number, ...] = ()
    seeds: tuple[int, ...] = ()


class Measurement(Record):
    """One split, measured by the evaluator: the value, its spread and the paired comparison."""

    split: Split
    commit: str
    against_commit: str | None = None
    against_hypothesis_id: str | None = None
    against_revision: int = 0
    eval_status: EvalStatus
    primary_metric_status: MetricStatus
    value: Number | None = None
    spread: Spread | None = None
    ratio: Spread | None = None
    difference: Spread | None = None
    label: str | None = Field(default=None, description="why there is no score")
    samples: Samples = Field(default_factory=Samples)
    manifest: ProcessManifest | None = None
    isolation: str = "none"


class Comparison(Record):
    """A score beside another: the baseline's, the parent's, the champion's of the time."""

    against: Literal["baseline", "parent", "champion"]
    hypothesis_id: str | None = None
    value: Number = Field(description="the other's score, in the metric's unit")
    ratio: Number | None = Field(default=None, description="this score over the other's")


class Evaluation(Record):
    """`research_evaluation_v0`: the evaluator's own measurement of the dev split, and its checks."""

    schema_version: Literal["research_evaluation_v0"] = "research_evaluation_v0"
    attempt: int
    evidence_revision: int
    measurement: Measurement
    checks: tuple[Check, ...]
    comparisons: tuple[Comparison, ...] = ()
    verdict: Verdict
    failure_kind: FailureKind | None = None
    failure: str | None = None
    confirmation: Literal["noise", "champion_moved"] | None = None
    retry_reason: str | None = None
    stop_reason: StopReason | None = None


class Holdout(Record):
    """A held-out question: counted when asked, then answered."""

    attempt: int
    status: Literal["asked", "measured"]
    question: int = Field(ge=1)
    measurement: Measurement | None = None
    checks: tuple[Check, ...] = ()
    target_met: bool | None = None


class Baseline(Record):
    """`baseline_v0`: iteration 0, both splits of the approved base."""

    schema_version: Literal["baseline_v0"] = "baseline_v0"
    dev: Measurement
    holdout: Measurement | None = None


class Signature(Record):
    """One role's word for a two-signature transition, bound to what it saw."""

    to_state: Literal["promoted", "retired"]
    order: Literal["first", "second"]
    reason: EndReason
    rationale: str = ""
    evidence_revision: int
    disagrees: bool = False


class TerminalDecision(Record):
    """`auto_research_terminal_decision_v0`: takes effect with the second signature."""

    schema_version: Literal["auto_research_terminal_decision_v0"] = (
        "auto_research_terminal_decision_v0"
    )
    outcome: Literal["promoted", "retired"]
    reason: EndReason
    commit: str | None = None
    evidence_revision: int
    holdout_revision: int | None = None
    value: Number | None = None
    low: Number | None = None
    target_met: bool = False


class Recovery(Record):
    """A claim that ended without its step: who held it, at which fence, and what is known of why.

    `revision` is that of the event by which it ended; `detail` is what its holder or the lane of a
    worker that died could still say, such as an exit code or the end of stderr.
    """

    revision: int
    reason: str
    agent_id: str
    role: Role
    incarnation: str = ""
    fence: int
    attempt: int | None = None
    detail: str = ""


class Gate(Record):
    """`operator_gate_v0`: what a person is asked, and what follows."""

    schema_version: Literal["operator_gate_v0"] = "operator_gate_v0"
    kind: GateKind
    question: str
    after_yes: str = ""
    after_no: str = ""
    meanwhile: str = ""
    recoveries: tuple[Recovery, ...] = ()
    evidence_revision: int | None = None


class GateDecision(Record):
    """`gate_decision_v0`: a person's word, bound to the hash of what was shown."""

    schema_version: Literal["gate_decision_v0"] = "gate_decision_v0"
    verdict: Literal["approved", "rejected"]
    shown: str
    reason: str = ""


class Approval(Record):
    """`approval_v0`: exactly this contract."""

    schema_version: Literal["approval_v0"] = "approval_v0"
    contract_hash: str
    uncalibrated: bool = False


class PeerReview(Record):
    """`auto_research_peer_review_v0`: a peer's word on a terminal decision.

    `independent` is what the reviewer's side found at the time; nothing reads it.
    """

    schema_version: Literal["auto_research_peer_review_v0"] = "auto_research_peer_review_v0"
    decision_revision: int = Field(ge=1)
    evidence_revision: int = Field(ge=0, description="the item's, as the reviewer saw it")
    verdict: Literal["approve", "reject", "needs_more_evidence"]
    reason: str = Field(min_length=1, max_length=2000)
    evidence_refs: tuple[str, ...] = ()
    independent: bool | None = None


TEXT_LIMIT = 8000
"""The most characters of a person's idea."""


class Idea(Record):
    """What the proposer needs to turn a person's idea into a hypothesis."""

    title: str = Field(min_length=1, max_length=48)
    mechanism_family: str = Field(default="unnamed", min_length=1, max_length=60)
    driver: str
    change_ref: str | None = None


class AgentRegistration(Record):
    """`agent_registration_v0`: an agent and the roles it may hold, or the one it declares."""

    schema_version: Literal["agent_registration_v0"] = "agent_registration_v0"
    agent_id: str
    roles: tuple[Role, ...] = ()
    host: str = ""
    removed: bool = False
    declaration: DeclaredRole | None = None

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "AgentRegistration":
        if bool(self.roles) == (self.declaration is not None):
            msg = "roles, or the declaration of one role"
            raise ValueError(msg)
        return self


class Spend(Record):
    """`spend_v0`: what one admitted turn cost."""

    schema_version: Literal["spend_v0"] = "spend_v0"
    attempt: int
    cost_usd: Number = Field(ge=0)
    usage: dict[str, int] = Field(default_factory=dict)


class NextAction(Record):
    """`agent_lane_next_action_v0`: the decision of `quota should-run`."""

    schema_version: Literal["agent_lane_next_action_v0"] = "agent_lane_next_action_v0"
    goal_id: str
    agent_id: str
    role: Role | None = None
    should_run: bool
    reason: str
    selected: dict[str, Any] | None = None
    blocked: tuple[dict[str, str], ...] = ()
    blocked_total: int = 0
    budget: dict[str, Any]
    wait: dict[str, Any] | None = None
    next: tuple[str, ...] | None = None
    gap: dict[str, Any] | None = None
    phase: Phase | None = None
    revision: int


class TodoItem(Record):
    """`todo_item_v0`: one todo of the shared store."""

    schema_version: Literal["todo_item_v0"] = "todo_item_v0"
    goal_id: str
    todo_id: str
    kind: TodoKind
    role: Role | None = None
    state: str
    version: int
    claimed_by: str | None = None
    incarnation: str | None = None
    lease_until: UtcTime | None = None
    fence: int = 0
    blocked_by: tuple[str, ...] = ()
    created_by: str = ""
    refs: tuple[str, ...] = ()
