"""kill -9 from outside: of each worker in turn, of its lane, of all at once; the rest goes on."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from contracts.events import EvaluationRecorded
from contracts.store.embedded import ensure_server, server_status
from roles.goal.context import GoalContext
from roles.lanes.ending import end_lanes, lane_processes, live_lanes
from tests.integration.test_whole_run import replayed, until_over
from tests.stress.audit import audit_goal
from tests.support import wait_until
from tests.tiny import CHANGES, RunLanes, git, make_goal, make_repository


def assert_sound(context: GoalContext, repository: Path) -> None:
    """Hold every promise that a run full of crashes must keep."""
    state = replayed(context)
    items = [item for item in state.items.values() if item.kind == "hypothesis"]
    assert items
    assert {str(item.state) for item in items} <= {"promoted", "retired"}
    events = context.follower.by_revision.values()
    measured = Counter(
        (event.hypothesis_id, event.evaluation.evidence_revision)
        for event in events
        if isinstance(event, EvaluationRecorded)
    )
    assert max(measured.values()) == 1
    assert sum(event.type == "lease_expired" for event in events) <= 2
    assert git(repository, "show", f"labmates/{context.goal_id}/champion:value.txt") == "6\n"
    assert list((context.home / "worktrees" / context.goal_id).iterdir()) == []
    assert not (context.home / "scratch" / context.goal_id).exists()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("who", ["curator-1", "proposer-1", "executor-1", "evaluator-1"])
def test_a_killed_worker_is_started_again_and_goes_on_where_it_was(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path, who: str
) -> None:
    del store_home, server_of_home
    seed = random.randrange(2**32)
    print(f"seed {seed}, kills {who}")
    draw = random.Random(seed)
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-kill")
    running = run_lanes(context)
    for _ in range(3):
        wait_until(
            lambda: who in live_lanes(context) or not running.tend(),
            description=f"{who} lives",
            timeout_s=60,
        )
        target = context.reader.goal().get("rev", "0")
        step = draw.randrange(3, 40)
        wait_until(
            lambda: int(context.reader.goal()["rev"]) > int(target) + step or not running.tend(),  # noqa: B023
            description="some events",
            timeout_s=120,
        )
        pid, _start = live_lanes(context).get(who, (0, ""))
        if pid:
            os.kill(pid, signal.SIGKILL)
    until_over(running, context)
    assert_sound(context, repository)


@pytest.mark.timeout(400)
def test_a_killed_lane_lets_its_worker_drain_and_is_brought_back(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del store_home, server_of_home
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-lane")
    running = run_lanes(context)
    wait_until(
        lambda: "executor-1" in live_lanes(context), description="the executor lives", timeout_s=30
    )
    pid, _ = live_lanes(context)["executor-1"]
    lane = psutil.Process(pid).ppid()
    os.kill(lane, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), description="its worker drains", timeout_s=30)
    until_over(running, context)
    assert_sound(context, repository)


@pytest.mark.timeout(400)
def test_down_leaves_no_process_and_no_claim_and_up_goes_on(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del store_home, server_of_home
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-down")
    running = run_lanes(context)
    wait_until(
        lambda: int(context.reader.goal().get("attempts_used", "0")) >= 2,
        description="two attempts",
        timeout_s=120,
    )
    said: list[str] = []
    ended = end_lanes(context, patience_s=20, tell=said.append)
    assert ended == ["curator-1", "evaluator-1", "executor-1", "proposer-1"]
    wait_until(lambda: running.tend() == 0, description="the lanes end")
    assert live_lanes(context) == {}
    claims = [context.reader.agent(agent).get("claim") for agent in context.reader.agent_ids()]
    assert not any(claims)
    again = run_lanes(context)
    until_over(again, context)
    assert_sound(context, repository)


@pytest.mark.timeout(400)
def test_a_killed_server_comes_back_with_its_data_and_the_lanes_go_on(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-server")
    running = run_lanes(context)
    for _ in range(3):
        seen = int(context.reader.goal()["rev"])
        step = draw.randrange(5, 30)
        wait_until(
            lambda: int(context.reader.goal()["rev"]) > seen + step or not running.tend(),  # noqa: B023
            description="some events",
            timeout_s=120,
        )
        pid = server_status(store_home).pid
        assert pid is not None
        before = int(context.reader.goal()["rev"])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), description="the server is gone")  # noqa: B023
        ensure_server(store_home)
        assert int(context.reader.goal()["rev"]) >= before
    until_over(running, context)
    assert_sound(context, repository)


@pytest.mark.timeout(400)
def test_workers_stopped_past_their_lease_and_killed_do_no_harm_when_they_go_on(
    store_home: Path,
    server_of_home: str,
    run_lanes: RunLanes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del store_home, server_of_home
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setenv("LABMATES_LEASE_S", "0.8")
    changes = {title: CHANGES[title] for title in ("double", "wrong", "best")}
    repository = make_repository(tmp_path / "repo", changes=changes)
    context = make_goal(repository, "tiny-stop")
    running = run_lanes(context)
    for who in draw.sample(["executor-1", "evaluator-1", "executor-1", "proposer-1"], 4):
        wait_until(
            lambda: who in live_lanes(context) or not running.tend(),  # noqa: B023
            description=f"{who} lives",
            timeout_s=60,
        )
        wait_until(
            lambda: bool(context.reader.agent(who).get("claim")) or not running.tend(),  # noqa: B023
            description=f"{who} has a claim",
            timeout_s=60,
        )
        pid, _start = live_lanes(context).get(who, (0, ""))
        if not pid:
            continue
        os.kill(pid, signal.SIGSTOP)
        expires = time.monotonic() + draw.choice([0.3, 1.5])
        wait_until(lambda: time.monotonic() > expires, description="a while", timeout_s=5)  # noqa: B023
        with contextlib.suppress(ProcessLookupError):  # it ended as it was stopped
            os.kill(pid, signal.SIGKILL if draw.random() < 0.25 else signal.SIGCONT)
    until_over(running, context)
    assert audit_goal(context.reader).wrongs == []
    items = [item for item in replayed(context).items.values() if item.kind == "hypothesis"]
    assert {str(item.state) for item in items} <= {"promoted", "retired"}
    assert len(items) == len(changes)
    assert lane_processes(context) == {}
    assert list((context.home / "worktrees" / context.goal_id).iterdir()) == []
    assert not (context.home / "scratch" / context.goal_id).exists()
    assert list(repository.rglob("*.lock")) == []
