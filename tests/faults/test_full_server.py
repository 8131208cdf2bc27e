"""A server whose memory is full refuses whole operations, and takes them once there is room."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis

from contracts.errors import StoreReadOnlyError
from contracts.store.reader import Reader
from contracts.store.writer import Held, Writer
from tests.goals import BASE, add_items, make_goal, take

if TYPE_CHECKING:
    from collections.abc import Callable

AGENTS = [
    ("executor-1", "executor"),
    ("executor-2", "executor"),
    ("proposer-1", "proposer"),
    ("evaluator-1", "evaluator"),
]


def test_field_case_35_a_full_server_refuses_each_operation_whole_and_takes_it_later(
    any_client: redis.Redis, goal_id: str
) -> None:
    goal = make_goal(any_client, goal_id, agents=AGENTS)
    add_items(goal, "proposer-1", [1, 2, 3])
    proposing, selected = take(goal, "proposer-1"), take(goal, "executor-1")
    running = start(goal, take(goal, "executor-2"))
    steps: dict[str, Callable[[], object]] = {
        "propose": lambda: propose(goal, proposing),
        "finish": lambda: goal.advance(
            running, "evidence_recorded", records=[("evidence_recorded", "{}")], commit=BASE
        ),
        "claim": lambda: take(goal, "evaluator-1"),
        "renew": lambda: goal.renew(agent_id="executor-1", incarnation="test", held=selected),
        "requeue": lambda: goal.release(selected, "stopped"),
    }
    before = dump(goal)
    any_client.config_set("maxmemory", "1")
    try:
        for name, step in steps.items():
            with pytest.raises(StoreReadOnlyError, match="memory is full") as refused:
                step()
            assert refused.value.exit_code == 4, name
            assert dump(goal) == before, name
        assert Reader(any_client, goal_id).item(selected.todo_id)["claimed_by"] == "executor-1"
    finally:
        any_client.config_set("maxmemory", "0")
    for step in steps.values():
        step()
    assert Reader(any_client, goal_id).item(selected.todo_id).get("claimed_by", "") == ""


def dump(goal: Writer) -> dict[str, bytes | None]:
    return {
        str(key): goal.client.dump(str(key)) for key in goal.client.keys(f"{{{goal.goal_id}}}*")
    }


def start(goal: Writer, held: Held) -> Held:
    base = Reader(goal.client, goal.goal_id).goal()["champion_rev"]
    records = [("attempt_started", "{}")]
    answer = goal.advance(held, "attempt_running", records=records, base_rev=base, base_commit=BASE)
    return replace(held, version=int(str(answer["version"])))


def propose(goal: Writer, held: Held) -> None:
    goal.propose(
        held,
        body="{}",
        text_digest="one more",
        rank=9,
        rank_reason="",
        title="one more",
        family="f",
        cursor="9",
    )
