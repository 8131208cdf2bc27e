"""Fixtures on real servers, each in a folder of its own; nothing of the person's is touched."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from contracts.store.connect import connect
from contracts.store.embedded import ServerStatus, ensure_server, server_status, stop_server
from tests.tiny import RunLanes, lanes_of_a_test


@contextmanager
def session_server(binary: str | None) -> Iterator[ServerStatus]:
    """Run a server in a home of its own, whatever the environment says then or later."""
    root = Path(tempfile.mkdtemp(prefix="lm-", dir="/tmp"))
    (root / "run").mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(root / "run"))
        environment.delenv("LABMATES_SERVER_BINARY", raising=False)
        if binary:
            environment.setenv("LABMATES_SERVER_BINARY", binary)
        ensure_server(root / "home")
        found = server_status(root / "home")
    try:
        yield found
    finally:
        stop_server(root / "home")
        shutil.rmtree(root)


@pytest.fixture
def store_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a fresh LABMATES_HOME with a short path; a server left in it is stopped."""
    for name in [name for name in os.environ if name.startswith("LABMATES_")]:
        monkeypatch.delenv(name)
    root = Path(tempfile.mkdtemp(prefix="lm-", dir="/tmp"))
    (root / "run").mkdir(mode=0o700)
    home = root / "home"
    monkeypatch.setenv("LABMATES_HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
    yield home
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
    stop_server(home)
    shutil.rmtree(root)


@pytest.fixture
def short_path(store_home: Path) -> Path:
    """Give an empty folder whose path is short enough for sockets, whatever TMPDIR is."""
    folder = store_home.parent / "short"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _private_home(store_home: Path) -> None:
    """Keep every test away from the person's home and store."""


@pytest.fixture(scope="session")
def server() -> Iterator[ServerStatus]:
    """Give the embedded server of the session; each test uses a goal id of its own."""
    with session_server(None) as found:
        yield found


@pytest.fixture(scope="session", params=["embedded", "redis"])
def any_server(request: pytest.FixtureRequest) -> Iterator[ServerStatus]:
    """Give the embedded server, then Debian's redis-server (7.0 or newer)."""
    if request.param == "embedded":
        found: ServerStatus = request.getfixturevalue("server")
        yield found
        return
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.fail("redis-server is missing; apt-get install -y redis-server", pytrace=False)
    with session_server(binary) as found:
        yield found


@pytest.fixture
def server_url(server: ServerStatus) -> str:
    """Give the address of `server`."""
    assert server.url
    return server.url


@pytest.fixture
def redis_client(server_url: str) -> Iterator[redis.Redis]:
    """Give a client of `server`, made as the product makes it."""
    with connect(server_url) as client:
        yield client


@pytest.fixture
def any_server_url(any_server: ServerStatus) -> str:
    """Give the address of `any_server`."""
    assert any_server.url
    return any_server.url


@pytest.fixture
def any_client(any_server_url: str) -> Iterator[redis.Redis]:
    """Give a client of `any_server`."""
    with connect(any_server_url) as client:
        yield client


@pytest.fixture
def goal_id() -> str:
    """Give a goal id that no other test of the session uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def server_of_home(store_home: Path) -> Iterator[str]:
    """Run an embedded server of this test's home, so that processes of the test find it."""
    url = ensure_server(store_home)
    yield url
    stop_server(store_home)


@pytest.fixture
def run_lanes() -> Iterator[RunLanes]:
    """Start lanes as processes; none of them outlives the test."""
    with lanes_of_a_test() as run:
        yield run
