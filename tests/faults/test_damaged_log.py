"""The server's log is cut or padded: it starts with whole calls, or says what to do."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import StoreError
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, stop_server
from contracts.store.home import store_dir
from contracts.store.reader import Reader
from tests.scenario import AGENTS, Scenario
from tests.stress.audit import audit_goal

GOAL = "damaged"


@pytest.fixture(params=["embedded", "redis"])
def played(
    store_home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Give the log of a goal that was played half through, its server stopped."""
    if request.param == "redis":
        monkeypatch.setenv("LABMATES_SERVER_BINARY", shutil.which("redis-server") or "redis-server")
    with connect(ensure_server(store_home)) as client:
        scenario = Scenario(client, GOAL).open()
        for _ in range(12):
            for agent_id in AGENTS:
                scenario.step(agent_id)
    stop_server(store_home)
    (log,) = (store_dir(store_home) / "appendonlydir").glob("*.incr.aof")
    yield log
    stop_server(store_home)


def sound_revision(home: Path) -> int:
    """Start the server and audit the goal; gives its revision, 0 where the cut took all of it."""
    with connect(ensure_server(home)) as client:
        reader = Reader(client, GOAL)
        assert audit_goal(reader).wrongs == []
        return int(reader.goal().get("rev", "0"))


def test_a_log_that_is_cut_anywhere_comes_back_as_whole_calls_and_the_loss_can_be_told(
    played: Path, store_home: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    whole, data = played.read_bytes(), store_dir(store_home)
    copy = store_home.parent / "copy"
    shutil.copytree(data, copy)
    full = sound_revision(store_home)
    seen = set()
    for _ in range(4):
        stop_server(store_home)
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        (data / "server.pid").touch()  # as after a power cut
        played.write_bytes(whole[: draw.randrange(len(whole) // 4, len(whole))])
        revision = sound_revision(store_home)
        assert revision < full
        seen.add(revision)
        with connect(ensure_server(store_home)) as client:
            line = f"advance executor-1 todo_0001 1 {full}"
            reader = Reader(client, GOAL)
            assert f"{GOAL}: lost: {line}" in audit_goal(reader, [line]).wrongs
            scenario = Scenario(client, GOAL)
            for agent_id in AGENTS if revision else ():
                scenario.claim(agent_id)
            revision = int(reader.goal().get("rev", "0"))
        stop_server(store_home)
        assert sound_revision(store_home) == revision  # and what was rolled back stays so
    assert len(seen) > 1


def test_a_log_padded_with_zeros_is_named_and_its_mend_loses_no_call(
    played: Path, store_home: Path
) -> None:
    full = sound_revision(store_home)
    stop_server(store_home)
    with played.open("ab") as file:
        file.write(b"\0" * 4096)
    with pytest.raises(StoreError, match="log is damaged") as caught:
        ensure_server(store_home)
    assert caught.value.exit_code == 4
    backup, check, again = caught.value.mend
    subprocess.run(backup, check=True)
    subprocess.run(check, check=True, input="y\n", text=True, capture_output=True)
    assert again == ["labmates", "store", "start"]
    assert sound_revision(store_home) == full
