"""The store refuses for a while, or has lost its functions: lanes wait it out and go on."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from contracts.store.connect import connect
from roles.goal.context import GoalContext
from roles.lanes.ending import end_lanes, lane_processes
from tests.faults.test_kill_workers import assert_sound
from tests.integration.test_whole_run import until_over
from tests.support import wait_until
from tests.tiny import RunLanes, make_goal, make_repository


def lanes_say(context: GoalContext, word: str) -> bool:
    logs = (context.folder / "logs").glob("*-1.log")
    return any(word in path.read_text() for path in logs)


def fill(client: redis.Redis) -> Callable[[], object]:
    client.config_set("maxmemory", "1")
    return lambda: client.config_set("maxmemory", "0")


def replicate_nobody(client: redis.Redis) -> Callable[[], object]:
    client.replicaof("127.0.0.1", 1)
    return lambda: client.replicaof("NO", "ONE")


def forget_functions(client: redis.Redis) -> Callable[[], object]:
    client.function_flush()
    return lambda: None


@pytest.mark.timeout(400)
@pytest.mark.parametrize("outage", [fill, replicate_nobody, forget_functions])
def test_a_store_that_refuses_for_a_while_ends_no_lane(
    store_home: Path,
    server_of_home: str,
    run_lanes: RunLanes,
    tmp_path: Path,
    outage: Callable[[redis.Redis], Callable[[], object]],
) -> None:
    del store_home
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-outage")
    running = run_lanes(context)
    wait_until(
        lambda: int(context.reader.goal().get("attempts_used", "0")) >= 2,
        description="two attempts",
        timeout_s=120,
    )
    client = connect(server_of_home)
    over = outage(client)
    wait_until(lambda: lanes_say(context, "store_outage"), description="an outage", timeout_s=60)
    over()
    until_over(running, context, limit_s=240)
    assert_sound(context, repository)


@pytest.mark.timeout(200)
def test_down_finds_lanes_that_are_only_starting(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del store_home, server_of_home
    context = make_goal(make_repository(tmp_path / "repo"), "tiny-early")
    running = run_lanes(context)
    ended = end_lanes(context, patience_s=30, tell=lambda _text: None)
    assert ended == ["curator-1", "evaluator-1", "executor-1", "proposer-1"]
    assert lane_processes(context) == {}
    wait_until(lambda: running.tend() == 0, description="the lanes end", timeout_s=30)
