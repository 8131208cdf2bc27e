"""Workers that stop, hang, die or come back late: the item goes on without them, and they go on too."""

import os
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from contracts.events import AttemptStarted, LeaseExpired, RetryRecorded, StaleResultRejected
from contracts.store import keys
from contracts.store.connect import connect
from contracts.words import StopReason
from roles.drivers.base import Brief, DriverOutcome, DriverStatus
from roles.goal.context import GoalContext
from roles.lanes.ending import end_lanes, lane_processes, live_lanes
from roles.steps import limits
from tests.integration.test_whole_run import replayed, until_over
from tests.steps import enlist, lane_of, step
from tests.support import wait_until
from tests.tiny import CHANGES, RunLanes, labmates, make_goal, make_repository

ONE = {"double": CHANGES["double"]}

SLOW_FIRST = """#!/bin/sh
# the first run waits for a file and brings 9, every other one brings its number of lines
echo x >> {folder}/count
runs=$(wc -l < {folder}/count)
if [ "$runs" = 1 ]; then
  while [ ! -e {folder}/go ]; do sleep 0.02; done
  echo 9 > value.txt
else
  echo "$runs" > value.txt
fi
"""


def script(folder: Path, text: str) -> str:
    """Write a driver's script; gives the command."""
    place = folder / "driver.sh"
    place.write_text(text.format(folder=folder))
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return str(place)


def prepare(context: GoalContext, todos: int = 1) -> None:
    """Measure the baseline and propose what is in the queue."""
    step(lane_of(context, "evaluator-1"))
    for _ in range(todos):
        step(lane_of(context, "proposer-1"))


@pytest.mark.timeout(200)
def test_field_case_2_a_stopped_worker_comes_back_late_and_its_result_changes_nothing(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "1.5")
    repository = make_repository(
        tmp_path / "repo", changes=ONE, parallel=2, command=script(tmp_path, SLOW_FIRST)
    )
    context = make_goal(repository, "late-2")
    running = run_lanes(context, "executor=2")
    wait_until((tmp_path / "count").exists, description="the attempt runs", timeout_s=60)
    first = str(context.reader.item("todo_0001")["claimed_by"])
    pid, _ = live_lanes(context)[first]
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: context.reader.item("todo_0001").get("evidence_rev"),
        description="another one finishes",
        timeout_s=30,
    )
    (tmp_path / "go").touch()
    time.sleep(0.2)  # the first driver ends while its worker stands
    os.kill(pid, signal.SIGCONT)
    until_over(running, context)
    state = replayed(context)
    item = state.items["todo_0001"]
    assert item.state == "promoted"
    late = [e for e in state.events.values() if isinstance(e, StaleResultRejected)]
    assert len(late) == 1
    assert (late[0].agent_id, item.stale) == (first, [late[0].fence])
    assert late[0].result.startswith(("evidence of attempt 1", "retry packet of attempt 1"))
    assert [state.attempts[n].evidence is None for n in (1, 2)] == [True, False]
    champion = context.git.out("show", f"{state.champions[-1].commit}:value.txt")
    assert str(champion) in {"2\n", "b'2\\n'"}


def test_field_case_13_a_late_worker_drops_the_step_and_takes_the_next_todo(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "0.3")
    changes = {name: CHANGES[name] for name in ("double", "triple")}
    repository = make_repository(
        tmp_path / "repo", changes=changes, parallel=2, command=script(tmp_path, SLOW_FIRST)
    )
    context = make_goal(repository, "late-13")
    prepare(context, 2)
    slow, other = lane_of(context, "executor-1"), lane_of(context, "executor-2")
    thread = threading.Thread(target=step, args=(slow,))
    thread.start()
    wait_until((tmp_path / "count").exists, description="the attempt runs")
    wait_until(
        lambda: step(other) and context.reader.item("todo_0001")["state"] == "evidence_recorded",
        description="another one finishes",
    )
    before = context.reader.item("todo_0001")
    (tmp_path / "go").touch()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert (context.home / "worktrees" / "late-13" / "1" / "value.txt").read_text() == "9\n"
    now = context.reader.item("todo_0001")
    assert now == {**before, "stale": now["stale"]}
    assert step(slow) in {"evidence_recorded", "needs_retry"} or step(other) == ""
    late = [e for e in replayed(context).events.values() if isinstance(e, StaleResultRejected)]
    assert [event.agent_id for event in late] == ["executor-1"]


def test_field_case_20_a_todo_that_is_gone_does_not_stop_the_worker(
    server_of_home: str, tmp_path: Path
) -> None:
    changes = {name: CHANGES[name] for name in ("double", "triple")}
    repository = make_repository(
        tmp_path / "repo", changes=changes, parallel=2, command=script(tmp_path, SLOW_FIRST)
    )
    context = make_goal(repository, "gone-20")
    prepare(context, 2)
    lane = lane_of(context, "executor-1")
    thread = threading.Thread(target=step, args=(lane,))
    thread.start()
    wait_until((tmp_path / "count").exists, description="the attempt runs")
    connect(server_of_home).delete(keys.item("gone-20", "todo_0001"))
    (tmp_path / "go").touch()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert step(lane) == "evidence_recorded"
    assert context.reader.item("todo_0002")["state"] == "evidence_recorded"


def test_field_case_1_a_long_step_is_renewed_and_nobody_runs_it_again(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "1.5")
    repository = make_repository(
        tmp_path / "repo", changes=ONE, parallel=2, command=script(tmp_path, SLOW_FIRST)
    )
    context = make_goal(repository, "long-1")
    prepare(context)
    lane, other = lane_of(context, "executor-1"), lane_of(context, "executor-2")
    lane.start_lease(0.3)
    thread = threading.Thread(target=step, args=(lane,))
    thread.start()
    wait_until((tmp_path / "count").exists, description="the attempt runs")
    ends: set[int] = set()

    def renewed() -> bool:
        ends.add(context.reader.leases().get("todo_0001", 0))
        return other.claim()["should_run"] == "1" or len(ends) > 12

    wait_until(renewed, description="ten renewals", timeout_s=30)
    (tmp_path / "go").touch()
    thread.join(timeout=20)
    lane.end_lease()
    assert context.reader.item("todo_0001")["state"] == "evidence_recorded"
    events = replayed(context).events.values()
    assert sum(isinstance(event, AttemptStarted) for event in events) == 1
    assert not any(isinstance(event, LeaseExpired) for event in events)
    assert (tmp_path / "count").read_text() == "x\n"


@pytest.mark.timeout(200)
def test_field_case_49_nothing_that_the_agent_of_a_killed_worker_started_survives(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is killed while it drains (case 47), in a step that might take six hours (16)."""
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "1.5")
    text = SLOW_FIRST.replace(
        "if [",
        "setsid sh -c 'trap \"\" HUP TERM; echo $$ >> {folder}/pids; sleep 600' &\nif [",
        1,
    )
    repository = make_repository(
        tmp_path / "repo",
        changes=ONE,
        parallel=2,
        command=script(tmp_path, text),
        attempt_timeout_s=21600,
    )
    context = make_goal(repository, "crash-16")
    running = run_lanes(context, "executor=2")
    pids = tmp_path / "pids"
    wait_until(
        lambda: pids.exists() and pids.read_text(), description="the attempt runs", timeout_s=60
    )
    first = str(context.reader.item("todo_0001")["claimed_by"])
    worker, _ = live_lanes(context)[first]
    lane_processes(context)[first].send_signal(signal.SIGTERM)
    wait_until(
        lambda: context.reader.lane(first).get("draining"), description="it says that it drains"
    )
    killed = context.reader.now_ms()
    os.kill(worker, signal.SIGKILL)
    child = int(pids.read_text().split()[0])
    wait_until(lambda: not lives(child), description="its child has ended", timeout_s=15)
    until_over(running, context)
    state = replayed(context)
    assert state.items["todo_0001"].state == "promoted"
    [noticed] = [event for event in state.events.values() if isinstance(event, LeaseExpired)]
    assert noticed.at.timestamp() * 1000 - killed < 1500 + 1500
    assert not any(lives(int(each)) for each in pids.read_text().split())


def lives(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_field_case_4_the_clock_says_that_a_lease_ended_and_any_role_gives_the_item_back(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "0.3")
    context = make_goal(make_repository(tmp_path / "repo", changes=ONE), "nobody-4")
    prepare(context)
    lane_of(context, "executor-1").claim()
    wait_until(
        lambda: context.reader.leases()["todo_0001"] <= context.reader.now_ms(),
        description="the lease ends",
    )
    said = labmates("status", "--goal-id", "nobody-4")
    assert "its lease on todo_0001 ended" in said.stdout
    lane_of(context, "curator-1").claim()
    assert context.reader.item("todo_0001")["state"] == "hypothesis_proposed"
    assert "ended" not in labmates("status", "--goal-id", "nobody-4").stdout


def test_field_case_16_a_crash_is_noticed_with_the_lease_whatever_a_step_may_take(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "0.3")
    repository = make_repository(
        tmp_path / "repo", changes=ONE, parallel=2, attempt_timeout_s=21600
    )
    context = make_goal(repository, "crash-16")
    prepare(context)
    lane_of(context, "executor-1").claim()  # and it is heard of no more
    begin = context.reader.now_ms()
    other = lane_of(context, "executor-2")
    wait_until(lambda: other.claim()["should_run"] == "1", description="the lease ends")
    assert context.reader.now_ms() - begin < 300 + 2000


def test_field_case_10_a_second_process_of_an_agent_is_refused(
    server_of_home: str, tmp_path: Path
) -> None:
    del server_of_home
    context = make_goal(make_repository(tmp_path / "repo", changes=ONE), "twice-10")
    enlist(lane_of(context, "executor-1"))
    asked = ("worker", "--role", "executor", "--agent-id", "executor-1", "--goal-id", "twice-10")
    done = labmates(*asked)
    assert done.returncode == 3, done.stderr
    assert "another process is executor-1 now" in done.stderr
    assert str(os.getpid()) in done.stderr


DEADLY = """#!/bin/sh
# the first idea kills whoever runs it: the worker is the parent of what keeps this command
if grep -q hyp_0001 "$LABMATES_BRIEF"; then
  keeper=$(ps -o ppid= -p $$ | tr -d ' ')
  kill -9 $(ps -o ppid= -p "$keeper" | tr -d ' ')
  sleep 600
fi
echo 6 > value.txt
"""


@pytest.mark.timeout(200)
def test_field_case_11_a_todo_that_kills_its_workers_waits_and_the_others_are_done(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "5")
    changes = {name: CHANGES[name] for name in ("double", "best")}
    repository = make_repository(
        tmp_path / "repo", changes=changes, command=script(tmp_path, DEADLY)
    )
    context = make_goal(repository, "deadly-11")
    running = run_lanes(context)
    wait_until(
        lambda: context.reader.item("todo_0002").get("state") == "promoted",
        description="the other idea is promoted",
        timeout_s=120,
    )
    assert running.given_up() == []
    end_lanes(context, patience_s=20, tell=lambda _text: None)
    item = context.reader.item("todo_0001")
    assert (item["state"], item["gate"]) == ("needs_retry", "gate_0001")
    said = labmates("gate", "show", "gate_0001", "--goal-id", "deadly-11").stdout
    assert "This item has cost 3 recoveries in a row. Try it again?" in said
    assert said.count("crash: executor-1 at fence") == 3
    assert said.count("signal 9") == 3
    replayed(context)


# Hanging -----------------------------------------------------------------------------------------


class Hanging:
    """A driver with a child that ignores TERM; it ends only when it is told to stop."""

    child: "subprocess.Popen[bytes] | None" = None

    @classmethod
    def run(cls, brief: Brief) -> DriverOutcome:
        """Hang past every limit; keep the child until the worker says stop."""
        ignoring = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        )
        cls.child = subprocess.Popen(["python3", "-c", ignoring])
        assert brief.stop is not None
        bound = time.monotonic() + 20
        while not brief.stop() and time.monotonic() < bound:
            time.sleep(0.02)
        cls.child.kill()
        cls.child.wait()
        return DriverOutcome(status=DriverStatus.STOPPED, summary="told to stop")


def test_field_case_22_a_step_that_hangs_is_ended_and_is_no_live_claim(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "0.6")
    monkeypatch.setattr(limits, "MARGIN_S", 0.5)
    monkeypatch.setattr("roles.steps.executing.get_driver", lambda _name: Hanging)
    repository = make_repository(tmp_path / "repo", changes=ONE, attempt_timeout_s=0.5)
    context = make_goal(repository, "hangs-22")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "MARGIN_S", 300.0)
        prepare(context)
    lane = lane_of(context, "executor-1")
    lane.start_lease(0.1)
    try:
        assert step(lane) == "needs_retry"
    finally:
        lane.end_lease()
    retries = [e for e in replayed(context).events.values() if isinstance(e, RetryRecorded)]
    assert [event.retry.stop_reason for event in retries] == [StopReason.TIMEOUT]
    assert "hung" in retries[0].retry.retry_reason
    assert Hanging.child is not None
    assert Hanging.child.poll() is not None
    assert not lane.lost or lane.held is None


def test_a_step_that_cannot_be_ended_loses_its_claim_though_its_process_lives(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "1.5")
    context = make_goal(make_repository(tmp_path / "repo", changes=ONE, parallel=2), "deaf-22")
    prepare(context)
    lane, other = lane_of(context, "executor-1"), lane_of(context, "executor-2")
    enlist(lane)
    lane.start_lease(0.1)
    try:
        assert lane.claim()["should_run"] == "1"
        lane.begin_step(2.0)
        time.sleep(1.7)  # longer than the lease: renewals keep the claim
        assert other.claim()["should_run"] == "0"
        wait_until(lambda: other.claim()["should_run"] == "1", description="the item comes back")
        assert lane.lost
        # its incarnation ends as well, so that the agent can be started again
        wait_until(
            lambda: int(context.reader.agent("executor-1")["inc_until"]) < context.reader.now_ms(),
            description="the incarnation ends",
        )
        lane.end_step()
    finally:
        lane.end_lease()


def test_research_case_38_a_renewal_that_fails_never_ends_the_work(
    server_of_home: str, tmp_path: Path
) -> None:
    del server_of_home
    context = make_goal(make_repository(tmp_path / "repo", changes=ONE), "beat-38")
    lane = lane_of(context, "evaluator-1")
    assert lane.claim()["should_run"] == "1"
    client = context.writer.client
    client.config_set("maxmemory", "1")
    lane.renew()
    client.config_set("maxmemory", "0")
    assert not lane.lost
    ends = context.reader.leases()["todo_baseline"]

    def renewed() -> bool:
        lane.renew()
        return context.reader.leases()["todo_baseline"] > ends

    wait_until(renewed, description="it renews again")


@pytest.mark.parametrize("command", ["true", "echo needs an interactive TTY"])
def test_field_case_53_an_agent_that_exits_0_and_changed_nothing_made_no_change(
    server_of_home: str, tmp_path: Path, command: str
) -> None:
    del server_of_home
    context = make_goal(make_repository(tmp_path / "repo", changes=ONE, command=command), "empty")
    prepare(context)
    assert step(lane_of(context, "executor-1")) == "needs_retry"
    [packet] = [e for e in replayed(context).events.values() if isinstance(e, RetryRecorded)]
    assert packet.retry.stop_reason == StopReason.NO_CHANGE
