"""`labmates store start | stop | status` as a person and as a program meet it."""

import json
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from contracts.errors import UsageError
from contracts.store.embedded import find_server, server_status
from roles.commands.store import store


def _run(*args: str) -> Result:
    return CliRunner().invoke(store, list(args))


def test_start_status_and_stop_tell_one_story(store_home: Path) -> None:
    started = _run("start", "--json")
    assert started.exit_code == 0, started.output
    found = json.loads(started.output)
    assert found["running"] is True
    assert found["url"] == find_server(store_home)
    assert found["appendfsync"] == "always"
    assert json.loads(_run("status", "--json").output) == found
    assert json.loads(_run("stop", "--json").output) == {"stopped": True}
    assert json.loads(_run("stop", "--json").output) == {"stopped": False}
    assert json.loads(_run("status", "--json").output)["running"] is False
    assert find_server(store_home) is None


def test_text_comes_in_two_columns(store_home: Path) -> None:
    _run("start", "--appendfsync", "everysec")
    lines = _run("status").output.splitlines()
    assert lines[0] == "running      yes"
    assert f"data dir     {store_home}/store" in lines
    assert "appendfsync  everysec" in lines
    assert _run("stop").output == "stopped\n"
    assert _run("stop").output == "no server was running\n"
    assert _run("status").output.startswith("running   no\n")


def test_status_starts_nothing(store_home: Path) -> None:
    assert _run("status").exit_code == 0
    assert not store_home.exists()


def test_status_of_another_server_hides_its_password(
    any_server_url: str,
    any_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    store_home: Path,
    goal_id: str,
) -> None:
    any_client.acl_setuser(goal_id, enabled=True, passwords=["+canary"], commands=["+info"])
    address = any_server_url.replace("unix://", f"unix://{goal_id}:canary@")
    monkeypatch.setenv("LABMATES_STORE_URL", address)
    found = json.loads(_run("status", "--json").output)
    assert found["url"] == address.replace(":canary", "")
    assert found["version"].split()[0] in {"valkey", "redis"}
    assert not server_status(store_home).running
    any_client.acl_deluser(goal_id)


@pytest.mark.parametrize("command", ["start", "stop"])
def test_another_server_is_neither_started_nor_stopped(
    any_server_url: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", any_server_url)
    outcome = _run(command)
    assert isinstance(outcome.exception, UsageError)
    assert outcome.exception.mend == [["unset", "LABMATES_STORE_URL"]]


@pytest.mark.parametrize("command", [[], ["start"], ["stop"], ["status"]])
def test_every_command_shows_an_example(command: list[str]) -> None:
    output = _run(*command, "--help").output
    assert "\n  Example:\n    labmates store " in output
