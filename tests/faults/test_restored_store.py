"""A store restored below running workers: they notice, join again, and finish."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest
import redis

from contracts.errors import StoreError
from contracts.store.backup import collect, restore_goals
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, server_status, stop_server
from contracts.store.library import ensure_library
from contracts.store.reader import Reader, goal_ids
from contracts.store.rebuild import diagnose
from contracts.store.removal import drop_goal
from projection.verify import verify
from tests.integration.store.dumps import dump
from tests.integration.test_whole_run import until_over
from tests.scenario import Scenario
from tests.support import wait_until
from tests.tiny import CHANGES, RunLanes, make_goal, make_repository


@pytest.mark.timeout(300)
def test_running_workers_notice_a_restored_store_and_go_on(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    changes = {name: CHANGES[name] for name in ("double", "triple", "best")}
    context = make_goal(make_repository(tmp_path / "repo", changes=changes), "tiny-1")
    reader = context.reader
    running = run_lanes(context)

    def revision() -> int:
        running.tend()
        return int(reader.goal().get("rev") or 0)

    def attempts() -> int:
        running.tend()
        return int(reader.goal().get("attempts_used") or 0)

    wait_until(lambda: attempts() >= 1, description="an attempt runs", timeout_s=60)
    saved = collect(reader)
    later = saved.state.revision + 8
    wait_until(lambda: revision() >= later, description="work beyond the backup", timeout_s=60)
    born = reader.goal()["store"]
    processes = {agent: reader.agent(agent).get("inc") for agent in reader.agent_ids()}

    def logs() -> dict[str, str]:
        folder = context.folder / "logs"
        return {path.stem: path.read_text() for path in folder.glob("*-1.log")}

    drop_goal(reader, None)
    wait_until(
        lambda: any("goal_gone" in text for text in logs().values()),
        description="a worker sees that the goal is gone, and waits",
        timeout_s=60,
    )
    assert restore_goals(reader.client, [saved], url=server_of_home) == ["tiny-1"]

    assert reader.goal()["store"] != born
    until_over(running, context)
    found = verify(reader)
    assert found.exit_code() == 0
    told = [agent for agent, text in logs().items() if "store_changed" in text]
    assert {"executor-1", "evaluator-1"} <= {*told}, logs()
    claims = {
        each.agent_id: each.incarnation
        for each in found.state.events.values()
        if each.type == "claimed" and each.revision > saved.state.revision
    }
    for agent in told:
        assert claims.get(agent, processes[agent]) == processes[agent]


@pytest.mark.parametrize("delay_ms", [2, 12, 30])
def test_a_restore_that_is_cut_off_leaves_the_whole_goal_or_nothing(
    redis_client: redis.Redis, goal_id: str, short_path: Path, delay_ms: int
) -> None:
    saved = collect(Scenario(redis_client, goal_id).open().play().reader)
    home = short_path / "other"
    url = ensure_server(home)
    pid = server_status(home).pid
    assert pid
    target = connect(url)
    ensure_library(target)
    killer = threading.Timer(delay_ms / 1000, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with contextlib.suppress(StoreError):
        restore_goals(target, [saved], url=url)
    killer.join()
    target.close()
    try:
        with connect(ensure_server(home)) as again:
            found = dump(again, goal_id)
            if found:
                assert diagnose(Reader(again, goal_id)).findings == ()
                assert collect(Reader(again, goal_id)).events == saved.events
            restore_goals(again, [saved])
            assert verify(Reader(again, goal_id)).exit_code() == 0
            assert goal_ids(again) == [goal_id]
    finally:
        stop_server(home)
