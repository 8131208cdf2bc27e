"""TERM and INT at any moment of a step: they raise a counter, and no item is lost by them."""

import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from contracts.events import RetryRecorded
from contracts.words import StopReason
from roles.lanes.ending import end_lanes, lane_processes, live_lanes
from tests.faults.test_kill_workers import assert_sound
from tests.faults.test_late_workers import ONE, SLOW_FIRST, script
from tests.integration.test_whole_run import replayed, until_over
from tests.support import rounds, wait_until
from tests.tiny import CHANGES, RunLanes, make_goal, make_repository


@pytest.mark.stress
@pytest.mark.timeout(400)
def test_field_case_46_storms_of_signals_at_random_moments_lose_no_item(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del store_home, server_of_home
    seed = random.randrange(2**32)
    storms = rounds(40)
    print(f"seed {seed}, {storms} storms")
    draw = random.Random(seed)
    changes = {name: CHANGES[name] for name in ("double", "best")}
    repository = make_repository(tmp_path / "repo", changes=changes)
    context = make_goal(repository, "storm-46")
    running = [run_lanes(context)]
    for _ in range(storms):
        wait_until(
            lambda: live_lanes(context) or not running[-1].tend(),
            description="a worker lives",
            timeout_s=60,
        )
        time.sleep(draw.uniform(0.0, 0.5))
        workers = [pid for pid, _ in live_lanes(context).values()]
        for _ in range(draw.randrange(1, 6)):
            for pid in draw.sample(workers, k=draw.randrange(len(workers) + 1)):
                try:
                    os.kill(pid, draw.choice([signal.SIGTERM, signal.SIGINT]))
                except ProcessLookupError:
                    continue
            time.sleep(draw.uniform(0.0, 0.005))
        if not running[-1].tend():
            running.append(run_lanes(context))
    end_lanes(context, patience_s=20, tell=lambda _text: None)
    wait_until(lambda: not running[-1].tend(), description="the lanes end", timeout_s=30)
    until_over(run_lanes(context), context)
    assert_sound(context, repository)
    # a worker that died of a signal would have left its claim to be resumed
    events = context.follower.by_revision.values()
    assert [event.revision for event in events if event.action == "resume"] == []


@pytest.mark.timeout(200)
def test_field_case_47_a_second_signal_hands_the_step_back_at_once(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    repository = make_repository(
        tmp_path / "repo", changes=ONE, command=script(tmp_path, SLOW_FIRST)
    )
    context = make_goal(repository, "twice-47")
    run_lanes(context)
    wait_until((tmp_path / "count").exists, description="the attempt runs", timeout_s=60)
    lane = lane_processes(context)["executor-1"]
    worker, _ = live_lanes(context)["executor-1"]
    lane.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    lane.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    wait_until(lambda: not psutil.pid_exists(worker), description="the worker is gone")
    assert time.monotonic() - begin < 10
    item = context.reader.item("todo_0001")
    assert (item["state"], item.get("claimed_by", "")) == ("needs_retry", "")
    [packet] = [e for e in replayed(context).events.values() if isinstance(e, RetryRecorded)]
    assert packet.retry.stop_reason == StopReason.OPERATOR_TAKEOVER
    end_lanes(context, patience_s=20, tell=lambda _text: None)
