"""The warm client: what it refuses, how its errors read, what it sends again."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from contracts.errors import (
    PreconditionError,
    StoreError,
    StoreForeignError,
    StoreReadOnlyError,
    StoreUnreachableError,
    UsageError,
)
from contracts.store import wire
from contracts.store.connect import (
    BLOCK_LIMIT_S,
    SOCKET_TIMEOUT_S,
    connect,
    raise_if_unfit,
    translate,
    with_retries,
)
from contracts.store.embedded import find_server
from contracts.store.launch import server_binary
from tests.support import wait_until

WRITER = """#!lua name={name}
redis.register_function('{name}', function(keys) return redis.call('INCR', keys[1]) end)
"""


@contextmanager
def own_server(folder: Path, *options: str) -> Iterator[str]:
    """Run a plain server of our own, for settings that others must not meet."""
    path = folder / "own.sock"
    argv = [str(server_binary()), "--port", "0", "--unixsocket", str(path), "--save", "", *options]

    def answers() -> bool:
        with suppress(StoreUnreachableError), wire.connect(f"unix://{path}", 5) as client:
            return client.call("PING") == "PONG"
        return False

    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=folder) as process:
        try:
            wait_until(answers, description="our server answers")
            yield f"unix://{path}"
        finally:
            process.kill()


def test_with_no_url_the_embedded_server_is_started(store_home: Path) -> None:
    with connect() as client:
        assert client.set("a", "ü") is True
        assert client.get("a") == "ü"
    assert find_server(store_home) is not None


def test_the_url_of_the_environment_is_used(
    store_home: Path, any_server_url: str, monkeypatch: pytest.MonkeyPatch, goal_id: str
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", any_server_url)
    with connect() as client:
        client.set(goal_id, "1")
    with wire.connect(any_server_url, 5) as other:
        assert other.call("GET", goal_id) == "1"
    assert find_server(store_home) is None


def test_field_case_26_the_socket_timeout_exceeds_every_block(any_client: redis.Redis) -> None:
    options = any_client.connection_pool.connection_kwargs
    assert options["socket_timeout"] == SOCKET_TIMEOUT_S > BLOCK_LIMIT_S + 10
    assert any_client.blpop(["nothing:there"], timeout=0.1) is None


def test_replies_have_one_shape_on_both_servers(any_client: redis.Redis, goal_id: str) -> None:
    first = any_client.xadd(goal_id, {"a": "1"})
    assert any_client.xrange(goal_id) == [(first, {"a": "1"})]
    any_client.zadd(f"{goal_id}:z", {"m": 1.5})
    assert any_client.zrange(f"{goal_id}:z", 0, -1, withscores=True) == [["m", 1.5]]


def _lose_first_reply(listener: socket.socket, real: str) -> None:
    """Relay to `real`, one request at a time; hang up instead of answering the first INCR."""
    lost = False
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer, socket.socket(socket.AF_UNIX) as server:
            server.connect(real)
            while request := peer.recv(65536):
                server.sendall(request)
                reply = server.recv(65536)
                if b"INCR" in request and not lost:
                    lost = True
                    break
                peer.sendall(reply)


def test_a_call_whose_reply_is_lost_is_not_sent_again(
    short_path: Path, server_url: str, goal_id: str
) -> None:
    path = short_path / "relay.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        relay = threading.Thread(
            target=_lose_first_reply, args=(listener, server_url.removeprefix("unix://"))
        )
        relay.start()
        client = connect(f"unix://{path}")
        with pytest.raises(redis.exceptions.ConnectionError) as caught:
            client.incr(goal_id)
        client.close()
        listener.shutdown(socket.SHUT_RDWR)
        relay.join()
    assert isinstance(translate(caught.value), StoreUnreachableError)
    with wire.connect(server_url, 5) as other:
        assert other.call("GET", goal_id) == "1"


def test_no_answer_names_the_address_and_the_reason(short_path: Path) -> None:
    with pytest.raises(StoreUnreachableError) as caught:
        connect(f"unix://{short_path}/none.sock")
    assert caught.value.message == (
        f"no answer from unix://{short_path}/none.sock (no such file or directory)"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(StoreUnreachableError) as caught:
        connect(f"redis://me:canary-123@127.0.0.1:{port}/0")
    assert "connection refused" in caught.value.message
    assert "canary" not in repr((caught.value.message, caught.value.facts, caught.value.mend))


def test_no_answer_names_the_setting_that_chose_the_address(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", f"unix://{short_path}/none.sock")
    with pytest.raises(StoreUnreachableError) as caught:
        connect()
    assert caught.value.facts["from"] == "LABMATES_STORE_URL"
    assert caught.value.mend == [["unset", "LABMATES_STORE_URL"]]
    monkeypatch.delenv("LABMATES_STORE_URL")
    with pytest.raises(StoreUnreachableError) as caught:
        connect(f"unix://{short_path}/none.sock")
    assert "from" not in caught.value.facts
    assert caught.value.mend == [["labmates", "store", "start"]]


@pytest.mark.parametrize("url", ["http://h", "nonsense", "redis://h:port"])
def test_what_is_no_address_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a store"):
        connect(url)


def test_wrong_credentials_are_no_connection_fault(any_server_url: str) -> None:
    url = any_server_url.replace("unix://", "unix://nobody:canary-123@")
    with pytest.raises(StoreError, match="refuses these credentials") as caught:
        connect(url)
    assert not isinstance(caught.value, StoreUnreachableError)
    assert "canary" not in repr((caught.value.message, caught.value.facts))


def test_credentials_that_may_not_ask_still_connect(
    any_server_url: str, any_client: redis.Redis, goal_id: str
) -> None:
    any_client.acl_setuser(goal_id, enabled=True, passwords=["+pw"], commands=["+ping"])
    with connect(any_server_url.replace("unix://", f"unix://{goal_id}:pw@")) as client:
        assert client.ping()
        with pytest.raises(redis.exceptions.NoPermissionError) as caught:
            client.get("a")
    assert "refuses these credentials" in translate(caught.value).message
    any_client.acl_deluser(goal_id)


def _both(client: redis.Redis, url: str, *command: str) -> list[StoreError]:
    """Give what `translate` makes of one command's error, by redis-py and by the wire."""
    with pytest.raises(redis.RedisError) as caught:
        client.execute_command(*command)  # type: ignore[no-untyped-call]
    with wire.connect(url, 5) as cold, pytest.raises(wire.WireReplyError) as raw:
        cold.call(*command)
    return [translate(caught.value, url=url), translate(raw.value, url=url)]


def test_a_replica_is_read_only(short_path: Path) -> None:
    with own_server(short_path) as url, connect(url) as client:
        client.function_load(WRITER.format(name="w"))
        client.replicaof("127.0.0.1", 1)
        for error in _both(client, url, "SET", "a", "1") + _both(
            client, url, "FCALL", "w", "1", "a"
        ):
            assert isinstance(error, StoreReadOnlyError)
            assert error.message == f"{url} takes no writes: it is a read-only replica"


def test_field_case_35_a_full_store_says_so(short_path: Path) -> None:
    with own_server(short_path) as url, connect(url) as client:
        client.function_load(WRITER.format(name="w"))
        client.config_set("maxmemory", 1)
        for error in _both(client, url, "SET", "a", "1") + _both(
            client, url, "FCALL", "w", "1", "a"
        ):
            assert isinstance(error, StoreReadOnlyError)
            assert error.message == f"{url} takes no writes: its memory is full"


def test_too_few_replicas_take_no_writes(short_path: Path) -> None:
    with own_server(short_path, "--min-replicas-to-write", "1") as url, connect(url) as client:
        for error in _both(client, url, "SET", "a", "1"):
            assert isinstance(error, StoreReadOnlyError)
            assert "too few replicas" in error.message


def test_another_programs_key_is_foreign(
    any_client: redis.Redis, any_server_url: str, goal_id: str
) -> None:
    any_client.set(goal_id, "text")
    for error in _both(any_client, any_server_url, "XADD", goal_id, "*", "a", "1"):
        assert isinstance(error, StoreForeignError)
    for error in _both(any_client, any_server_url, "NOSUCHCOMMAND"):
        assert isinstance(error, StoreForeignError)


def test_any_other_error_is_a_plain_store_error(
    any_client: redis.Redis, any_server_url: str, goal_id: str
) -> None:
    any_client.set(goal_id, "text")
    for error in _both(any_client, any_server_url, "INCR", goal_id):
        assert type(error) is StoreError
        assert "not an integer" in error.message


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
def test_field_case_34_a_server_that_evicts_is_refused(short_path: Path, policy: str) -> None:
    with own_server(short_path, "--maxmemory-policy", policy) as url:
        with pytest.raises(PreconditionError, match=policy) as caught:
            connect(url)
        assert caught.value.mend[0][-3:] == ["set", "maxmemory-policy", "noeviction"]


def test_a_server_older_than_functions_is_refused() -> None:
    raise_if_unfit({"redis_version": "7.0.0", "maxmemory_policy": "noeviction"})
    with pytest.raises(StoreForeignError, match=r"version 6\.2\.14; functions need"):
        raise_if_unfit({"redis_version": "6.2.14", "maxmemory_policy": "noeviction"})


def test_only_connection_faults_are_tried_again() -> None:
    calls: list[int] = []

    def fails_twice() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise redis.exceptions.ConnectionError
        return "done"

    assert with_retries(fails_twice) == "done"
    assert len(calls) == 3

    def refused() -> str:
        calls.append(1)
        message = "You can't write against a read only replica."
        raise redis.exceptions.ReadOnlyError(message)

    calls.clear()
    with pytest.raises(StoreReadOnlyError):
        with_retries(refused)
    assert len(calls) == 1


def test_retries_give_up_and_say_how_often(short_path: Path) -> None:
    url = f"unix://{short_path}/none.sock"
    begin = time.monotonic()
    with pytest.raises(StoreUnreachableError, match=r"no such file or directory, [2-9] tries\)"):
        with_retries(lambda: connect(url), limit_s=0.5)
    assert time.monotonic() - begin < 3


def test_a_server_that_comes_back_is_found_by_the_retry(short_path: Path) -> None:
    attempts: list[int] = []
    with own_server(short_path) as url:
        (short_path / "own.sock").rename(short_path / "away.sock")

        def ask() -> bool:
            attempts.append(1)
            if len(attempts) == 2:
                (short_path / "away.sock").rename(short_path / "own.sock")
            with connect(url) as client:
                return bool(client.ping())

        assert with_retries(ask)
    assert len(attempts) == 2
