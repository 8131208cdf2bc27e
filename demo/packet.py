"""`demo_packet_v0`: all that a run would do, worked out without doing any of it.

Building it starts no process, opens no socket and writes no file; it reads the package and the
names of the folders below LABMATES_HOME.
"""

import sys
from typing import Literal

from pydantic import Field

from contracts.contract import ResearchContract
from contracts.models import Number, Record
from contracts.rolemap import ROLE_MAP
from contracts.store.home import labmates_home
from contracts.words import Role
from demo.goals import demo_folder, next_goal_id
from demo.objects import commit_id, tree_entries, workspace_files
from demo.preset import CONTRACT, Preset
from roles.goal.contract_file import _normalized, _protected
from roles.goal.contract_toml import parse_contract
from roles.lanes.launch import DEFAULT_LANES
from roles.workspace.objects import scope_digest

MINUTES = {"knn": 5}
"""What a run takes on two cores that do nothing else; by preset."""

LIMIT_BYTES = 20_000


class LanePlan(Record):
    """One lane: what it runs, where its output goes, what its role may write.

    `pane` is null as long as lanes are plain processes.
    """

    agent_id: str
    role: Role
    pane: str | None = None
    log: str
    argv: tuple[str, ...]
    quota_guard: tuple[str, ...] = Field(description="asked before each step; it only reads")
    capability: str
    primary_job: str
    may_write: str
    must_not: str


class Control(Record):
    """A command of the person's, and what it does."""

    argv: tuple[str, ...]
    effect: str


class BudgetPlan(Record):
    """What a run may spend."""

    max_attempts: int
    max_parallel: int
    cost_usd: Number = 0.0
    model: str | None = None
    minutes: int | None = None


class DemoPacket(Record):
    """`demo_packet_v0`: the dry run as one document."""

    schema_version: Literal["demo_packet_v0"] = "demo_packet_v0"
    preset: str
    goal_id: str
    objective: str
    metric: str
    unit: str
    target: Number | None = None
    target_split: Literal["dev", "held-out"]
    stops_at: str
    contract_hash: str
    base_commit: str
    editable: tuple[str, ...]
    protected: tuple[str, ...]
    budget: BudgetPlan
    owner_gate: bool
    workspace: str
    lanes: tuple[LanePlan, ...]
    watch: tuple[str, ...]
    ask: tuple[str, ...] = Field(description="asked before each step; LANE is a lane")
    controls: tuple[Control, ...]
    start: tuple[str, ...]
    attach: tuple[str, ...] = Field(description="while it runs, the same command only watches")
    stop: tuple[str, ...]


def build_packet(preset: Preset, *, python: str = sys.executable) -> DemoPacket:
    """Work out the packet of a preset's next run.

    Args:
        preset: What would run.
        python: The interpreter that the contract would name.
    """
    goal_id = next_goal_id(preset.name)
    contract = planned_contract(preset, goal_id, python=python)
    evaluation, policy = contract.evaluation, contract.policy
    logs = labmates_home() / "goals" / goal_id / "logs"
    start = ("labmates", "demo", "--execute", "--headless", *_named(preset))
    cards = {card.role: card for card in ROLE_MAP}
    lanes = tuple(
        LanePlan(
            agent_id=agent_id,
            role=role,
            log=str(logs / f"{agent_id}.log"),
            argv=(
                *("labmates", "worker", "--role", str(role), "--agent-id", agent_id),
                *("--goal-id", goal_id),
            ),
            quota_guard=(
                *("labmates", "quota", "should-run", "--agent-id", agent_id),
                *("--goal-id", goal_id),
            ),
            capability=cards[role].capability,
            primary_job=cards[role].primary_job,
            may_write=cards[role].may_write,
            must_not=cards[role].must_not,
        )
        for agent_id, role in DEFAULT_LANES
    )
    return DemoPacket(
        preset=preset.name,
        goal_id=goal_id,
        objective=contract.context.objective,
        metric=evaluation.metric,
        unit=evaluation.unit,
        target=evaluation.target,
        target_split="held-out" if evaluation.holdout else "dev",
        stops_at=contract.strategy.stop,
        contract_hash=contract.contract_hash(),
        base_commit=contract.base_commit,
        editable=contract.context.editable,
        protected=contract.context.protected,
        budget=BudgetPlan(
            max_attempts=policy.max_attempts,
            max_parallel=policy.max_parallel,
            minutes=MINUTES.get(preset.name),
        ),
        owner_gate=policy.owner_gate,
        workspace=str(demo_folder() / goal_id),
        lanes=lanes,
        watch=("labmates", "status", "--watch"),
        ask=("labmates", "quota", "should-run", "--agent-id", "LANE"),
        controls=(
            Control(argv=("labmates", "pause"), effect="no new claims; resume undoes it"),
            Control(argv=("labmates", "gate", "list"), effect="what waits for you, if anything"),
            Control(argv=("labmates", "down"), effect="ends all lanes, leaves no claim"),
        ),
        start=start,
        attach=start,
        stop=("labmates", "down", "--goal-id", goal_id),
    )


def _named(preset: Preset) -> tuple[str, ...]:
    return () if preset.name == "knn" else ("--preset", preset.name)


def planned_contract(preset: Preset, goal_id: str, *, python: str) -> ResearchContract:
    """Give the contract that the run would approve, its base commit worked out."""
    files = workspace_files(preset, python=python)
    tree = tree_entries(files)
    found = parse_contract(files[CONTRACT])
    protected = _protected(found, [entry.path for entry in tree])
    return _normalized(
        found,
        goal_id=goal_id,
        protected=protected,
        base_commit=commit_id(preset, files),
        digest=scope_digest(tree, protected),
    )
