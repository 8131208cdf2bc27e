"""Goals for tests, made through the real writer: a contract, a roster, hypotheses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contracts.canonical import canonical, sha256_hex
from contracts.contract import ResearchContract
from contracts.store.library import ensure_library
from contracts.store.writer import Held, Writer

if TYPE_CHECKING:
    import redis

OPERATOR = "operator:test"
ROLES = ("curator", "proposer", "executor", "evaluator")
NUMBERS = {
    "max_attempts": "8",
    "max_parallel": "3",
    "max_cost": "20000000",
    "deadline_s": "0",
    "lease_ms": "30000",
    "max_lapses": "3",
    "retries": "2",
    "low_water": "4",
    "holdout_limit": "16",
    "holdout_per_item": "2",
    "holdout_required": "1",
    "owner_gate": "0",
    "stop": "target",
}
CONTRACT = ResearchContract.model_validate(
    {
        "context": {"goal_id": "knn", "objective": "faster", "editable": ("solution.py",)},
        "evaluation": {
            "metric": "speedup",
            "direction": "maximize",
            "unit": "x",
            "dev": "python evaluate.py",
            "holdout": "python evaluate.py --holdout",
            "target": 12.0,
        },
        "base_commit": "0" * 40,
        "protected_scope_sha256": "0" * 64,
    }
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal with its writer and one agent per role."""

    goal_id: str
    writer: Writer

    def claimed(self, agent_id: str) -> Held:
        """Claim the next step of an agent and give the claim."""
        reply = self.writer.claim(agent_id=agent_id, incarnation="test")
        assert reply["should_run"] == "1", reply
        return held(self.goal_id, agent_id, reply)

    def propose(self, title: str, *, rank: float = 1.0, rank_reason: str = "untried family") -> str:
        """Add a hypothesis through the proposer; gives its todo."""
        todo, _ = self.writer.propose(
            self.claimed("proposer-1"),
            body=canonical({"hypothesis": hypothesis(title, rank)}),
            text_digest=sha256_hex(title),
            rank=rank,
            rank_reason=rank_reason,
            title=title,
            family="family",
            cursor="",
        )
        return todo

    def baseline(self) -> None:
        """Record the baseline, so that executors may start."""
        claim = self.claimed("evaluator-1")
        self.writer.record(claim, "baseline_recorded", "{}", commit="0" * 40)


def hypothesis(title: str, rank: float) -> dict[str, Any]:
    """Give the body of a hypothesis."""
    return {
        "title": title,
        "hypothesis": title,
        "mechanism_family": "family",
        "no_grounding_reason": "a test",
        "frontier_rank": rank,
        "driver": "files",
    }


def held(goal_id: str, agent_id: str, reply: dict[str, object]) -> Held:
    """Read a claim out of the reply that gave it."""
    return Held(
        goal_id=goal_id,
        agent_id=agent_id,
        incarnation="test",
        role=str(reply["selected_role"]),
        todo_id=str(reply["todo"]),
        fence=int(str(reply["fence"])),
        version=int(str(reply["version"])),
    )


def make_goal(
    client: "redis.Redis",
    goal_id: str,
    *,
    approved: bool = True,
    baseline: bool = True,
    **numbers: str,
) -> Goal:
    """Make a goal with `executor-1` and its like on the roster."""
    ensure_library(client)
    writer = Writer(client, goal_id)
    digest = CONTRACT.contract_hash()
    body = canonical({"contract": CONTRACT.to_json_dict(), "contract_hash": digest})
    writer.create(
        operator=OPERATOR, contract_hash=digest, numbers=NUMBERS | numbers, bodies=["{}", body]
    )
    for role in ROLES:
        register(writer, f"{role}-1", role)
    goal = Goal(goal_id, writer)
    if approved:
        approval = canonical({"approval": {"contract_hash": digest}})
        writer.approve(operator=OPERATOR, contract_hash=digest, body=approval)
        if baseline:
            goal.baseline()
    return goal


def register(writer: Writer, agent_id: str, *roles: str) -> None:
    """Put an agent on the roster."""
    registration = {"agent_id": agent_id, "roles": list(roles)}
    body = canonical({"registration": registration})
    writer.register(operator=OPERATOR, agent_id=agent_id, roles=roles, body=body)
