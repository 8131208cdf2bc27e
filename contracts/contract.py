"""`research_contract_v0`: what a goal may do, in five parts (L1), and its hash."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from contracts.canonical import canonical, sha256_hex
from contracts.ids import GOAL_ID_PATTERN
from contracts.models import Number, Record
from contracts.words import Direction

Globs = Annotated[tuple[str, ...], Field(min_length=1)]
MAX_ATTEMPTS_CLAMP = 50
MAX_LAPSES = 3
HOLDOUT_PER_ITEM = 2


class Context(Record):
    """What is to become better, and which files may change."""

    goal_id: str = Field(pattern=GOAL_ID_PATTERN)
    objective: str = Field(min_length=1, max_length=2000)
    editable: Globs
    protected: tuple[str, ...] = ()


class Environment(Record):
    """In what surroundings the contract's commands run."""

    python: str = "python3"
    env: dict[str, str] = Field(default_factory=dict)
    timeout_s: Number = Field(default=120.0, gt=0)
    resource_class: str = "cpu"
    inputs: tuple[str, ...] = ()
    setup: str = ""
    setup_inputs: tuple[str, ...] = ()


class Evaluation(Record):
    """How a number is measured, and when it counts as a gain."""

    metric: str = Field(min_length=1, max_length=60)
    direction: Direction
    unit: str = Field(default="", max_length=12)
    dev: str = Field(min_length=1)
    holdout: str | None = None
    channel: Literal["file", "stdout"] = "stdout"
    seed: Literal["none", "drawn"] = "none"
    target: Number | None = None
    target_by: Literal["low_end", "value"] = "low_end"
    pairs: int = Field(default=8, ge=1, le=200)
    min_gain: Number = Field(default=0.0, ge=0)
    min_delta: Number = Field(default=0.0, ge=0)
    max_relative_spread: Number | None = Field(default=None, gt=0)
    guard: str = ""
    required_artifacts: tuple[str, ...] = ()
    compatibility: tuple[str, ...] = ()
    bounds: tuple[Number, Number] | None = None

    @field_validator("bounds")
    @classmethod
    def _bounds_in_order(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] >= value[1]:
            msg = "the lower bound must be below the upper one"
            raise ValueError(msg)
        return value


class Strategy(Record):
    """Where hypotheses come from and when the goal stops."""

    source: Literal["queue"] = "queue"
    queue: str = "hypotheses.jsonl"
    driver: str = "files"
    driver_command: str = ""
    selector: Literal["diagnostic", "balanced", "optimization"] = "balanced"
    stop: Literal["target", "queue_empty"] = "target"
    low_water: int = Field(default=4, ge=1, le=1000)
    required_holdout_improvement_count: int = Field(default=0, ge=0, le=1000)
    successor_source: Literal["proposer"] = "proposer"
    unmet_target_rule: Literal["add_successor", "escalate"] = "add_successor"
    no_followup_rule: Literal["record_and_escalate"] = "record_and_escalate"


class Policy(Record):
    """What may be spent, and who decides."""

    max_attempts: int = Field(default=20, ge=1, le=MAX_ATTEMPTS_CLAMP)
    max_parallel: int = Field(default=1, ge=1, le=256)
    attempt_timeout_s: Number = Field(default=600.0, gt=0)
    retries: int = Field(default=2, ge=0, le=20)
    deadline_s: int = Field(default=0, ge=0)
    max_cost_usd: Number = Field(default=0.0, ge=0)
    owner_gate: bool = False
    holdout_limit: int = Field(default=0, ge=0)
    isolation: Literal["none"] = "none"


class ResearchContract(Record):
    """`research_contract_v0`: one approved contract makes one goal, for ever."""

    schema_version: Literal["research_contract_v0"] = "research_contract_v0"
    context: Context
    environment: Environment = Field(default_factory=Environment)
    evaluation: Evaluation
    strategy: Strategy = Field(default_factory=Strategy)
    policy: Policy = Field(default_factory=Policy)
    base_commit: str = Field(pattern=r"^[0-9a-f]{40,64}$")
    protected_scope_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _target_needs_a_way_to_end(self) -> "ResearchContract":
        if self.strategy.stop == "target" and self.evaluation.target is None:
            msg = "strategy.stop is 'target', but evaluation.target is missing"
            raise ValueError(msg)
        return self

    @property
    def holdout_limit(self) -> int:
        """How many held-out questions the goal may ask: the policy's, or twice its attempts."""
        return self.policy.holdout_limit or 2 * self.policy.max_attempts

    def contract_hash(self) -> str:
        """Hash the whole normalized contract, base commit included (SHA-256, hex)."""
        return sha256_hex(canonical(self.model_dump(mode="json")))


def goal_limits(contract: ResearchContract) -> dict[str, str]:
    """Give the limits of a contract that the store itself keeps to, as the goal's hash has them."""
    policy, strategy = contract.policy, contract.strategy
    limits = {
        "max_attempts": policy.max_attempts,
        "max_parallel": policy.max_parallel,
        "retries": policy.retries,
        "low_water": strategy.low_water,
        "max_lapses": MAX_LAPSES,
        "holdout_limit": contract.holdout_limit,
        "holdout_per_item": HOLDOUT_PER_ITEM,
        "holdout_required": int(contract.evaluation.holdout is not None),
        "owner_gate": int(policy.owner_gate),
        "deadline_s": policy.deadline_s,
        "max_cost": round(1_000_000 * policy.max_cost_usd),
        "improvements_required": strategy.required_holdout_improvement_count,
        "successors": int(strategy.unmet_target_rule == "add_successor"),
    }
    words = {"stop": strategy.stop, "direction": str(contract.evaluation.direction)}
    return {name: str(limit) for name, limit in limits.items()} | words
