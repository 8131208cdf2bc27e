"""The cold path's client against real servers."""

import secrets
import socket
import threading

import pytest

from contracts.errors import StoreUnreachableError, UsageError
from contracts.store import wire
from contracts.store.wire import Address, WireReplyError, parse_url, redact_url


def test_values_come_back_as_they_went(any_server_url: str, goal_id: str) -> None:
    with wire.connect(any_server_url, 5) as client:
        for value in ("", "ünïcödé ☃ 雪", "line\r\nbreak", "$5\r\n", "a" * 100):
            assert client.call("SET", goal_id, value) == "OK"
            assert client.call("GET", goal_id) == value
        assert client.call("SET", goal_id, b"\xff\x00raw") == "OK"
        answer = client.call("GET", goal_id)
        assert isinstance(answer, str)
        assert answer.encode(errors="surrogateescape") == b"\xff\x00raw"
        assert client.call("GET", f"{goal_id}:none") is None
        assert client.call("INCRBY", f"{goal_id}:n", -7) == -7


def test_a_reply_of_many_megabytes_arrives_whole(any_server_url: str, goal_id: str) -> None:
    text = "0123456789" * 800_000
    with wire.connect(any_server_url, 20) as client:
        client.call("SET", goal_id, text)
        assert client.call("GET", goal_id) == text
        client.call("DEL", goal_id)


def test_nested_replies_are_nested_lists(any_server_url: str, goal_id: str) -> None:
    with wire.connect(any_server_url, 5) as client:
        first = client.call("XADD", goal_id, "*", "a", "1")
        assert client.call("XRANGE", goal_id, "-", "+") == [[first, ["a", "1"]]]


def test_an_error_reply_is_raised_and_the_wire_stays_usable(
    any_server_url: str, goal_id: str
) -> None:
    with wire.connect(any_server_url, 5) as client:
        client.call("SET", goal_id, "text")
        with pytest.raises(WireReplyError) as caught:
            client.call("LPUSH", goal_id, "x")
        assert caught.value.reply_code == "WRONGTYPE"
        assert caught.value.reply_text.startswith("Operation against a key")
        with pytest.raises(WireReplyError, match="unknown command"):
            client.call("NOSUCHCOMMAND")
        assert client.call("PING") == "PONG"


def test_calls_together_answer_in_order_and_the_first_error_is_raised(
    any_server_url: str, goal_id: str
) -> None:
    with wire.connect(any_server_url, 5) as client:
        assert client.calls([["SET", goal_id, 1], ["INCR", goal_id], ["GET", goal_id]]) == [
            "OK",
            2,
            "2",
        ]
        with pytest.raises(WireReplyError, match="WRONGTYPE"):
            client.calls([["LPUSH", goal_id, "x"], ["NOSUCH"], ["SET", goal_id, "after"]])
        assert client.call("GET", goal_id) == "after"
        assert client.calls([]) == []


def test_a_database_number_in_the_url_is_selected(any_server_url: str, goal_id: str) -> None:
    with wire.connect(f"{any_server_url}?db=3", 5) as client, wire.connect(any_server_url, 5) as o:
        client.call("SET", goal_id, "three")
        assert o.call("GET", goal_id) is None
        client.call("DEL", goal_id)


def test_user_and_password_in_the_url_log_in(any_server_url: str, goal_id: str) -> None:
    password = secrets.token_hex(8)
    with wire.connect(any_server_url, 5) as owner:
        owner.call("ACL", "SETUSER", goal_id, "on", f">{password}", "+ping", "+acl|whoami")
        url = any_server_url.replace("unix://", f"unix://{goal_id}:{password}@")
        with wire.connect(url, 5) as client:
            assert client.call("ACL", "WHOAMI") == goal_id
            assert password not in client.url
        with pytest.raises(WireReplyError) as caught:
            wire.connect(url.replace(password, "wrong"), 5)
        assert caught.value.reply_code == "WRONGPASS"
        owner.call("ACL", "DELUSER", goal_id)


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_field_case_149_no_connection_error_tells_the_password() -> None:
    url = f"redis://me:canary-123@127.0.0.1:{_unused_port()}/0"
    with pytest.raises(StoreUnreachableError) as caught:
        wire.connect(url, 1)
    error = caught.value
    everything = repr((error.message, error.facts, error.mend, error.hint, error.tail))
    assert "canary-123" not in everything
    assert "connection refused" in error.message
    assert error.message.startswith("no answer from redis://me@127.0.0.1:")


def test_field_case_25_a_late_reply_is_never_taken_for_the_next() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = wire.connect(f"redis://127.0.0.1:{listener.getsockname()[1]}", 0.1)
        peer, _ = listener.accept()
        with peer, pytest.raises(StoreUnreachableError, match="timed out"):
            client.call("GET", "a")
        with pytest.raises(StoreUnreachableError, match="connection is closed"):
            client.call("GET", "b")


def test_a_server_that_hangs_up_half_way_is_unreachable() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer_half() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"$10\r\nhalf")

        thread = threading.Thread(target=answer_half)
        thread.start()
        with (
            wire.connect(f"redis://127.0.0.1:{listener.getsockname()[1]}", 5) as client,
            pytest.raises(StoreUnreachableError, match="connection closed by the server"),
        ):
            client.call("GET", "a")
        thread.join()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("unix:///a/b.sock", Address("/a/b.sock", "", 0, 0, "", "")),
        ("unix:///a%20b?db=2", Address("/a b", "localhost", 6379, 2, "", "")),
        ("redis://h", Address("", "h", 6379, 0, "", "")),
        ("redis://h:7000/4", Address("", "h", 7000, 4, "", "")),
        ("redis://:p%40ss@h/1", Address("", "h", 6379, 1, "", "p@ss")),
        ("redis://u:p@[::1]:1/", Address("", "::1", 1, 0, "u", "p")),
    ],
)
def test_urls_mean_what_they_mean_to_redis_py(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    "url", ["rediss://h", "http://h", "h:6379", "", "unix://", "redis://h:port", "redis://h/x"]
)
def test_what_is_no_address_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a store"):
        wire.connect(url, 1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:secret@h:1/0", "redis://u@h:1/0"),
        ("redis://:secret@h", "redis://h"),
        ("redis://u:se/cr@et@h", "redis://u@h"),
        ("unix:///a.sock?password=secret&db=1", "unix:///a.sock"),
        ("u:secret@h:1", "h:1"),
    ],
)
def test_a_shown_url_has_no_password(url: str, shown: str) -> None:
    assert redact_url(url) == shown
