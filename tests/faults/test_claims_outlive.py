"""Claims and what may befall their holders: a kill, another clock, a failover."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Held, Writer
from contracts.words import Stream
from tests.goals import BASE, add_items, make_goal, take, try_take
from tests.support import start_python, wait_until

LEASE_MS = 800
MARGIN_S = 3.0
"""For a machine that has much else to do."""

EXECUTORS = [("executor-1", "executor"), ("executor-2", "executor"), ("proposer-1", "proposer")]


def kinds_of(goal: Writer) -> list[str]:
    return [
        fields["type"] for _, fields in Reader(goal.client, goal.goal_id).entries(Stream.EXECUTOR)
    ]


def start_attempt(goal: Writer, held: Held) -> Held:
    base = Reader(goal.client, goal.goal_id).goal()["champion_rev"]
    records = [("attempt_started", "{}")]
    answer = goal.advance(held, "attempt_running", records=records, base_rev=base, base_commit=BASE)
    return replace(held, version=int(str(answer["version"])))


CLAIM_AND_WAIT = """
import sys
from contracts.store.connect import connect
from contracts.store.writer import Writer
from tests.goals import take
writer = Writer(connect(sys.argv[1]), sys.argv[2])
print(take(writer, "executor-1", "one").todo_id, flush=True)
sys.stdin.read()
"""


def test_field_case_7_what_a_killed_process_had_only_claimed_is_claimed_again_within_a_lease(
    any_client: redis.Redis, any_server_url: str, goal_id: str
) -> None:
    goal = make_goal(any_client, goal_id, agents=EXECUTORS, lease_ms=str(LEASE_MS))
    (todo,) = add_items(goal, "proposer-1", [1])
    worker = start_python(CLAIM_AND_WAIT, any_server_url, goal_id)
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == todo
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    # started again under another name: nothing tells the store that it is the same worker
    wait_until(
        lambda: try_take(goal, "executor-2", "two"),
        description="the item is claimed again",
        timeout_s=LEASE_MS / 1000 + MARGIN_S,
    )
    assert take(goal, "executor-2", "two").todo_id == todo
    assert kinds_of(goal).count("lease_expired") == 1


def test_field_case_8_an_agent_never_holds_what_it_cannot_start(
    any_client: redis.Redis, goal_id: str
) -> None:
    goal = make_goal(any_client, goal_id, agents=EXECUTORS, lease_ms=str(LEASE_MS))
    todos = add_items(goal, "proposer-1", range(5))
    started = []
    for _ in todos:
        held = take(goal, "executor-1")
        assert [take(goal, "executor-1") for _ in range(3)] == [held] * 3
        assert list(Reader(any_client, goal_id).leases()) == [held.todo_id]
        running = start_attempt(goal, held)
        started.append(held.todo_id)
        goal.advance(running, "needs_retry", records=[("retry_recorded", "{}")])
    assert started == todos
    assert kinds_of(goal).count("attempt_started") == 5
    assert "lease_expired" not in kinds_of(goal)


# Clocks ------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from contracts.store.connect import connect
from contracts.store.writer import Writer
from tests.goals import take
writer = Writer(connect(sys.argv[1]), sys.argv[2])
held = take(writer, "executor-1", "one")
print(time.time(), flush=True)
while not sys.stdin.readline().startswith("stop"):
    writer.renew(agent_id="executor-1", incarnation="one", held=held)
    print("renewed", flush=True)
"""
ASK = """
import sys, time
from contracts.store.connect import connect
from contracts.store.writer import Writer
from tests.goals import try_take
writer = Writer(connect(sys.argv[1]), sys.argv[2])
print(time.time(), flush=True)
while sys.stdin.readline():
    held = try_take(writer, "executor-2", "two")
    print(held.todo_id if held else "no", flush=True)
"""


@contextmanager
def under_clock(offset: str, code: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run Python whose clock is off by `offset`."""
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.fail("faketime is missing; apt-get install -y faketime", pytrace=False)
    process = start_python(code, *arguments, before=[faketime, "-f", offset])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: "subprocess.Popen[str]", line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_field_case_19_leases_are_the_store_s_clock_whatever_the_workers_think(
    redis_client: redis.Redis, server_url: str, goal_id: str
) -> None:
    lease_ms = 2 * LEASE_MS
    goal = make_goal(redis_client, goal_id, agents=EXECUTORS, lease_ms=str(lease_ms))
    (todo,) = add_items(goal, "proposer-1", [1])
    with (
        under_clock("-10m", HOLD, server_url, goal_id) as late,
        under_clock("+10m", ASK, server_url, goal_id) as early,
    ):
        assert late.stdout is not None
        assert early.stdout is not None
        clocks = [float(each.stdout.readline()) for each in (late, early) if each.stdout]
        assert clocks[1] - clocks[0] > 19 * 60
        ends = time.monotonic() + 2 * lease_ms / 1000
        while time.monotonic() < ends:  # no false expiry, in twice the lease
            assert say(late, "renew") == "renewed"
            assert say(early, "ask") == "no"
        wait_until(  # and no endless lease
            lambda: say(early, "ask") == todo,
            description="the lease ends",
            timeout_s=lease_ms / 1000 + MARGIN_S,
        )
    assert kinds_of(goal).count("lease_expired") == 1


# Failover ----------------------------------------------------------------------------------------


@contextmanager
def tcp_server(folder: Path) -> Iterator[int]:
    """Run redis-server on a free port of the loopback."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        with redis.Redis(port=port) as client:
            wait_until(lambda: answers(client), description="the server answers")
        yield port
    finally:
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_field_case_31_who_holds_what_a_failover_took_back_is_refused_and_harms_nothing(
    tmp_path: Path, goal_id: str
) -> None:
    with tcp_server(tmp_path / "a") as old_port, tcp_server(tmp_path / "b") as new_port:
        old, new = (connect(f"redis://127.0.0.1:{port}") for port in (old_port, new_port))
        new.replicaof("127.0.0.1", old_port)
        goal = make_goal(old, goal_id, agents=EXECUTORS)
        first, second = add_items(goal, "proposer-1", [1, 2])
        size = old.dbsize()
        wait_until(
            lambda: (
                new.info("replication")["master_link_status"] == "up"
                and new.hget(keys.goal(goal_id), "rev") == old.hget(keys.goal(goal_id), "rev")
                and new.dbsize() == size
            ),
            description="the replica follows",
        )
        new.replicaof("NO", "ONE")  # promoted; what follows reaches the old server alone
        held = take(goal, "executor-1", "one")
        assert held.todo_id == first
        running = start_attempt(goal, held)
        finish = [("evidence_recorded", "{}")]
        goal.advance(running, "evidence_recorded", records=finish, commit=BASE)  # acknowledged

        promoted = Writer(new, goal_id)
        ensure_library(new)
        reader = Reader(new, goal_id)
        assert reader.item(first)["state"] == "hypothesis_proposed"
        late = replace(running, version=running.version + 1)
        for step in (
            lambda: start_attempt(promoted, held),
            lambda: promoted.advance(late, "evaluated", records=[("evaluation_recorded", "{}")]),
            lambda: promoted.release(held, "stopped"),
            lambda: promoted.renew(agent_id="executor-1", incarnation="one", held=held),
        ):
            with pytest.raises(RefusedError) as refused:
                step()
            assert refused.value.reason == "not_claimed"

        # Another gets the item, even under the number that the lost claim had: it is no key to it.
        taken = take(promoted, "executor-2", "two")
        assert (taken.todo_id, taken.fence) == (first, held.fence)
        before = reader.item(first)
        for step in (
            lambda: start_attempt(promoted, held),
            lambda: promoted.release(held, "stopped"),
        ):
            with pytest.raises(RefusedError) as refused:
                step()
            assert refused.value.reason == "not_claimed"
        assert reader.item(first) == before
        promoted.reject_stale(late, body='{"current_fence": 0, "what": "done at the old server"}')
        assert kinds_of(promoted)[-1] == "stale_result_rejected"  # the incident is on record

        # And the one whose finish was lost goes on with what the store gives it now.
        assert take(promoted, "executor-1", "one").todo_id == second
        start_attempt(promoted, taken)
