"""The server's own clock jumps, forward and back: claims may end early, and nothing else happens."""

import random
import shutil
from pathlib import Path

import pytest

from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, stop_server
from contracts.store.launch import server_binary
from contracts.store.reader import Reader
from tests.stress.background import under_load
from tests.support import wait_until

WRAPPER = """#!/bin/sh
export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock} FAKETIME_NO_CACHE=1
export FAKETIME_DONT_FAKE_MONOTONIC=1
exec {server} "$@"
"""


@pytest.mark.timeout(400)
def test_a_jump_of_the_server_s_clock_ends_claims_at_most(
    store_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries or not shutil.which("faketime"):
        pytest.fail("faketime is missing; apt-get install -y faketime", pytrace=False)
    seed = random.randrange(2**32)
    clock, wrapper = tmp_path / "clock", store_home.parent / "valkey-server"
    clock.write_text("+0\n")
    text = WRAPPER.format(library=libraries[0], clock=clock, server=server_binary())
    wrapper.write_text(text)
    wrapper.chmod(0o700)
    monkeypatch.setenv("LABMATES_SERVER_BINARY", str(wrapper))
    url = ensure_server(store_home)
    with connect(url) as client:
        reader = Reader(client, "any")
        begin = reader.now_ms()
        with under_load(url, tmp_path / "load", seed=seed) as load:
            for jump in (600, 1200, 1800, 0, 900):
                before = reader.now_ms()
                clock.write_text(f"+{jump}\n")
                wait_until(
                    lambda: abs(reader.now_ms() - before) > 300_000,  # noqa: B023
                    description="the clock jumps",
                )
                load.goes_on(20)
        assert reader.now_ms() - begin > 800_000
        assert load.report["expired"] > 0
    stop_server(store_home)
