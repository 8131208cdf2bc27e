"""Lanes connect as the users of their roles; the server refuses them nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from contracts.store.acl import user_name
from contracts.store.credentials import folder_of
from contracts.words import Role
from projection.verify import verify
from roles.lanes.launch import Lanes
from tests.support import wait_until
from tests.tiny import RunLanes, labmates, make_goal, make_repository

CHANGES = {"double": {"value.txt": "2\n"}, "best": {"value.txt": "6\n"}}


def users(client: redis.Redis) -> set[str]:
    """Give the users of the connections that are open now."""
    return {each["user"] for each in client.client_list()}


def refused(client: redis.Redis) -> list[object]:
    """Name what the server refused since the log was emptied."""
    found = [each["object"] for each in client.acl_log()]
    return [each for each in found if each not in {"client|setinfo", "config|get"}]


@pytest.fixture
def external(any_server_url: str, any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server of the person's own, with the users of `labmates store acl` and no refusal yet."""
    monkeypatch.setenv("LABMATES_STORE_URL", any_server_url)
    done = labmates("store", "acl")
    assert done.returncode == 0, done.stderr
    any_client.acl_log_reset()
    return any_server_url


def test_the_lanes_of_a_home_run_a_goal_as_the_users_of_their_roles(
    external: str, any_client: redis.Redis, tmp_path: Path, goal_id: str, run_lanes: RunLanes
) -> None:
    del external
    context = make_goal(make_repository(tmp_path / "repo", changes=CHANGES), goal_id)
    lanes = run_lanes(context)
    roles = {user_name(role) for role in Role}
    wait_until(lambda: users(any_client) >= roles, description="a user a role", timeout_s=30)
    wait_until(lambda: lanes.tend() == 0, description="the goal is over", timeout_s=50)
    assert context.reader.goal()["target_met"] == "1"
    assert verify(context.reader).exit_code(records_only=False) == 0
    assert refused(any_client) == []


def test_a_worker_that_is_given_one_users_address_does_its_role_with_it(
    external: str, any_client: redis.Redis, tmp_path: Path, goal_id: str
) -> None:
    context = make_goal(make_repository(tmp_path / "repo", changes=CHANGES), goal_id)
    address = (folder_of(external) / f"{user_name(Role.EXECUTOR)}.url").read_text().strip()
    for agent_id, roles in (("others", "curator,proposer,evaluator"), ("executor-7", "executor")):
        added = labmates("agent", "add", agent_id, "--role", roles, "--goal-id", goal_id)
        assert added.returncode == 0, added.stderr
    lanes = Lanes(context)
    lanes.start([("others", None)])
    program = str(Path(sys.executable).with_name("labmates"))
    worker = subprocess.Popen(
        [program, "worker", "--agent-id", "executor-7", "--goal-id", goal_id],
        env={**os.environ, "LABMATES_STORE_URL": address},
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: lanes.tend() == 0, description="the goal is over", timeout_s=50)
        assert worker.wait(timeout=20) == 0
    finally:
        worker.kill()
        lanes.signal()
        for process in (worker, *lanes.processes()):
            process.wait(timeout=20)
    assert context.reader.goal()["target_met"] == "1"
    assert refused(any_client) == []
