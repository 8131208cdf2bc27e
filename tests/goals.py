"""Goals with many items, straight through the writer: what the store's own tests need."""

from collections.abc import Sequence

import redis

from contracts.store.library import ensure_library
from contracts.store.writer import Held, Writer

OPERATOR = "operator:test"
NUMBERS = {
    "max_attempts": "100000",
    "max_parallel": "64",
    "retries": "0",
    "stop": "queue_empty",
    "low_water": "1000000",
    "lease_ms": "30000",
    "max_lapses": "3",
    "holdout_limit": "1000",
    "holdout_per_item": "2",
    "holdout_required": "1",
}
HASH = "a" * 64
BASE = "b" * 40


def make_goal(
    client: redis.Redis,
    goal_id: str,
    *,
    agents: Sequence[tuple[str, str]],
    **numbers: str,
) -> Writer:
    """Make an approved goal with a recorded baseline and these agents on its roster."""
    ensure_library(client)
    writer = Writer(client, goal_id)
    writer.create(
        operator=OPERATOR, contract_hash=HASH, numbers={**NUMBERS, **numbers}, bodies=["{}", "{}"]
    )
    writer.approve(operator=OPERATOR, contract_hash=HASH, body="{}")
    for agent_id, roles in (*agents, ("baseline-1", "evaluator")):
        writer.register(operator=OPERATOR, agent_id=agent_id, roles=roles.split(","), body="{}")
    held = take(writer, "baseline-1")
    writer.record(held, "baseline_recorded", "{}", commit=BASE)
    return writer


def take(writer: Writer, agent_id: str, incarnation: str = "test") -> Held:
    """Claim what quota gives; a no is an error here."""
    found = try_take(writer, agent_id, incarnation)
    if found is None:
        message = f"quota gives {agent_id} nothing"
        raise AssertionError(message)
    return found


def try_take(writer: Writer, agent_id: str, incarnation: str = "test") -> Held | None:
    """Claim what quota gives, or None."""
    answer = writer.claim(agent_id=agent_id, incarnation=incarnation)
    if answer["should_run"] != "1":
        return None
    return Held(
        goal_id=writer.goal_id,
        agent_id=agent_id,
        incarnation=incarnation,
        role=str(answer["selected_role"]),
        todo_id=str(answer["todo"]),
        fence=int(str(answer["fence"])),
        version=int(str(answer["version"])),
    )


def add_items(writer: Writer, proposer: str, ranks: Sequence[float]) -> list[str]:
    """Propose one hypothesis for each rank; gives their todos."""
    found = []
    for number, rank in enumerate(ranks):
        held = take(writer, proposer)
        todo, _ = writer.propose(
            held,
            body="{}",
            text_digest=f"{writer.goal_id}-{number}",
            rank=rank,
            rank_reason="",
            title=f"item {number}",
            family="f",
            cursor=str(number),
        )
        found.append(todo)
    return found
