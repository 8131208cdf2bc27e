"""Credentials of the roles on real servers: what each may do, and what the server refuses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.acl import USERS
from contracts.store.connect import connect
from contracts.store.credentials import passwords_of, url_of
from contracts.store.embedded import ServerStatus
from contracts.store.reader import Reader
from contracts.store.users import make_users
from contracts.store.writer import Writer
from contracts.words import Role
from projection.verify import verify
from tests.scenario import OPERATOR, Scenario

Clients = dict[str, redis.Redis]
Attempt = Callable[[redis.Redis, str, str], object]


@pytest.fixture
def clients(any_server: ServerStatus, tmp_path: Path) -> Iterator[Clients]:
    """Give a client of each user of a server."""
    assert any_server.url
    passwords = passwords_of(tmp_path / "credentials" / "here")
    with connect(any_server.url) as person:
        make_users(person, passwords)
        found = {who: connect(url_of(any_server.url, who, passwords[who])) for who in USERS}
        yield {**found, "person": person}
    for client in found.values():
        client.close()


@pytest.fixture
def played(clients: Clients, goal_id: str) -> Scenario:
    """Play a whole goal, each call with the credentials of its role."""
    return play(clients, goal_id, 400)


def play(clients: Clients, goal_id: str, limit: int) -> Scenario:
    goal = Scenario(clients["person"], goal_id)
    by_role = {str(role): clients[role] for role in Role}
    goal.writer = Writer(clients["operator"], goal_id, by_role=by_role)
    goal.reader = Reader(clients["reader"], goal_id)
    return goal.open().play(limit)


def test_a_whole_goal_runs_on_the_credentials_of_its_roles(played: Scenario) -> None:
    assert played.reader.goal()["promotions"] > "0"
    found = verify(played.reader)
    assert not found.violations
    assert found.exit_code() in {0, 1}


STREAMS = ("curator", "proposer", "executor", "evaluator", "operator")
OWN = {"operator": {"operator", "curator"}, "reader": set()} | {str(r): {str(r)} for r in Role}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("who", USERS)
def test_each_user_appends_to_its_own_stream_only(
    clients: Clients, goal_id: str, who: str, stream: str
) -> None:
    key = keys.events(goal_id, stream)
    if stream in OWN[who]:
        assert clients[who].xadd(key, {"type": "noise"})
        return
    with pytest.raises(redis.exceptions.NoPermissionError):
        clients[who].xadd(key, {"type": "noise"})
    assert clients["person"].exists(key) == 0


ATTEMPTS: dict[str, Attempt] = {
    "DEL": lambda c, key, _: c.delete(key),
    "UNLINK": lambda c, key, _: c.unlink(key),
    "XDEL": lambda c, key, _: c.xdel(key, "1-1"),
    "XTRIM": lambda c, key, _: c.xtrim(key, maxlen=1),
    "XSETID": lambda c, key, _: c.execute_command("XSETID", key, "9-9"),  # type: ignore[no-untyped-call]
    "RENAME": lambda c, key, _: c.rename(key, key + "x"),
    "EXPIRE": lambda c, key, _: c.expire(key, 1),
    "SET": lambda c, _, goal: c.set(keys.goal(goal), "x"),
    "EVAL": lambda c, _, __: c.eval("return 1", 0),
    "FUNCTION LOAD": lambda c, _, __: c.function_load("#!lua name=x\nreturn 1", replace=True),
    "FUNCTION DELETE": lambda c, _, __: c.function_delete("labmates_v1"),
    "FLUSHALL": lambda c, _, __: c.flushall(),
    "CONFIG SET": lambda c, _, __: c.config_set("appendfsync", "no"),
    "ACL SETUSER": lambda c, _, __: c.execute_command("ACL", "SETUSER", "me", "+@all"),  # type: ignore[no-untyped-call]
    "SHUTDOWN": lambda c, _, __: c.execute_command("SHUTDOWN", "NOSAVE"),  # type: ignore[no-untyped-call]
    "MONITOR": lambda c, _, __: c.execute_command("MONITOR"),  # type: ignore[no-untyped-call]
    "KEYS": lambda c, _, __: c.keys("*"),
    "foreign key": lambda c, _, __: c.hset("another-program", "a", "b"),
}


@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.parametrize("who", USERS)
def test_nobody_deletes_configures_or_runs_code(
    clients: Clients, goal_id: str, who: str, name: str
) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        ATTEMPTS[name](clients[who], keys.events(goal_id, who), goal_id)


PROMOTION: dict[Any, Any] = {
    "type": "decided", "writer": "evaluator", "role": "evaluator", "agent": "evaluator-1",
    "to": "promoted", "body": "{}",
}  # fmt: skip


def test_a_forged_promotion_by_an_executor_is_refused_by_the_server(
    clients: Clients, goal_id: str
) -> None:
    goal = play(clients, goal_id, 3)
    executor, key = clients["executor"], keys.events(goal_id, "evaluator")
    before = clients["person"].xlen(key)
    with pytest.raises(redis.exceptions.NoPermissionError):
        executor.xadd(key, PROMOTION)
    values = {"agent": "evaluator-1", "inc": "evaluator-1#1", "role": "evaluator"}
    forger = Writer(executor, goal_id)
    with pytest.raises(RefusedError, match="these credentials may not claim as evaluator"):
        forger.call("claim", values)
    own = keys.declared("claim", goal_id, agent_id="evaluator-1", role="executor")
    flat = [part for pair in values.items() for part in pair]
    # the foreign stream is hidden in an argument: the function appends to declared ones only
    answer = executor.fcall("lm_claim_v1", len(own), *own, *flat)
    assert answer[:2] == ["refused", "undeclared_key"]
    assert clients["person"].xlen(key) == before
    assert not verify(goal.reader).violations


@pytest.mark.parametrize("role", Role)
def test_no_role_can_decide_a_gate(clients: Clients, goal_id: str, role: str) -> None:
    goal = play(clients, goal_id, 3)
    todo = next(iter(goal.reader.ready("start")))[0]
    gate = goal.writer.open_gate(operator=OPERATOR, todo_id=todo, kind="owner", body="{}")
    touched = int(goal.reader.item(todo)["touched"])
    with pytest.raises(RefusedError) as refused:
        Writer(clients[role], goal_id).decide_gate(
            operator=OPERATOR, gate_id=gate, verdict="approved", touched=touched, body="{}"
        )
    assert refused.value.reason == "no_permission"
    own = keys.declared("sign", goal_id, agent_id=OPERATOR, role=role)
    words = ["agent", OPERATOR, "gate", gate, "verdict", "approved", "touched", str(touched)]
    answer = clients[role].fcall("lm_gate_decide_v1", len(own), *own, *words, "body1", "{}")
    assert answer[:2] == ["refused", "undeclared_key"]
    assert goal.reader.gate(gate)["status"] == "open"


def test_an_event_in_the_wrong_stream_is_ignored_by_readers_and_named_by_verify(
    clients: Clients, goal_id: str
) -> None:
    goal = play(clients, goal_id, 400)
    champion = goal.reader.goal()["champion_todo"]
    loser = next(
        todo for todo in ("todo_0003", "todo_0004") if goal.reader.item(todo)["state"] == "retired"
    )
    entry = clients["executor"].xadd(
        keys.events(goal_id, "executor"), {**PROMOTION, "todo": loser, "from": "retired"}
    )
    found = verify(goal.reader)
    assert found.exit_code() == 6
    assert any(each.entry_id == entry for each in found.violations)
    assert goal.reader.goal()["champion_todo"] == champion
    assert goal.reader.item(loser)["state"] == "retired"


def test_the_credentials_of_a_home_are_made_once_and_kept_private(tmp_path: Path) -> None:
    folder = tmp_path / "credentials" / "embedded"
    first = passwords_of(folder)
    assert passwords_of(folder) == first
    assert set(first) == set(USERS)
    assert len(set(first.values())) == len(USERS)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert json.dumps(first)
