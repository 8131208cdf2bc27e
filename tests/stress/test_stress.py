"""Eight processes claim and advance under kills, of themselves and of the server; then the audit."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from contracts.store import keys
from contracts.store.reader import Reader
from tests.scenario import Scenario
from tests.stress.audit import audit_goal
from tests.support import rounds


def load(*arguments: str) -> dict[str, Any]:
    """Run the load in a process of its own; gives its report, in which nothing may be wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["wrongs"] == []
    assert done.returncode == 0
    return found


@pytest.mark.stress
@pytest.mark.timeout(7200)
def test_nothing_is_claimed_twice_and_nothing_acknowledged_is_lost_under_random_kills() -> None:
    steps = rounds(1_000_000)
    found = load("--steps", str(steps))
    assert found["steps"] >= steps
    assert found["kills"] > 0
    assert found["expired"] > 0
    assert found["late"] > 0
    assert found["ended"] > steps / 30


@pytest.mark.stress
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("appendfsync", "kills"), [("always", 50), ("everysec", 20)])
def test_a_server_killed_under_load_loses_no_acknowledged_write(
    appendfsync: str, kills: int
) -> None:
    wanted = rounds(kills)
    found = load("--server-kills", str(wanted), "--appendfsync", appendfsync)
    assert found["servers_killed"] == wanted
    assert found["acknowledged"] > wanted


# What the audit is worth --------------------------------------------------------------------------


@pytest.fixture
def played(redis_client: redis.Redis, goal_id: str) -> Iterator[Scenario]:
    scenario = Scenario(redis_client, goal_id).open().play()
    assert audit_goal(scenario.reader).wrongs == []
    yield scenario
    redis_client.delete(*redis_client.keys(f"{{{goal_id}}}*"))


def wrongs_of(scenario: Scenario, *lines: str) -> str:
    return "\n".join(audit_goal(Reader(scenario.client, scenario.goal_id), lines).wrongs)


def test_the_audit_sees_an_acknowledged_write_that_is_not_there(played: Scenario) -> None:
    revision = int(played.reader.goal()["rev"]) + 1
    assert "lost: claim" in wrongs_of(played, f"claim executor-1 todo_0001 {revision} {revision}")


def test_the_audit_sees_another_event_in_the_place_of_an_acknowledged_one(
    played: Scenario,
) -> None:
    assert "another event" in wrongs_of(played, "claim executor-1 todo_0007 3 3")


def test_the_audit_sees_a_removed_event(played: Scenario) -> None:
    key = keys.events(played.goal_id, "executor")
    first = played.client.xrange(key, count=1)
    assert first
    played.client.xdel(key, str(first[0][0]))
    assert "not every revision" in wrongs_of(played)


@pytest.mark.parametrize("field", ["attempts_used", "live", "attempt_count"])
def test_the_audit_sees_a_counter_that_does_not_add_up(played: Scenario, field: str) -> None:
    played.client.hincrby(keys.goal(played.goal_id), field, 1)
    assert f"{field} is" in wrongs_of(played)


def test_the_audit_sees_a_second_claim_of_a_held_item(played: Scenario) -> None:
    revision = int(played.reader.goal()["rev"])
    key = keys.events(played.goal_id, "executor")
    for number, agent in enumerate(("executor-1", "executor-2"), start=1):
        event: dict[Any, Any] = {
            "body": "{}",
            "type": "claimed",
            "rev": str(revision + number),
            "agent": agent,
            "todo": "todo_0001",
            "fence": str(revision + number),
            "action": "select",
        }
        played.client.xadd(key, event)
    assert "is claimed by executor-2" in wrongs_of(played)
