"""What happens to a store while agents write to it: nothing is lost, doubled or half done."""

import os
import random
import signal
from pathlib import Path

import pytest
import redis

from contracts.errors import PreconditionError, StoreForeignError, StoreUnreachableError
from contracts.store import keys, library
from contracts.store.connect import BLOCK_LIMIT_S, SOCKET_TIMEOUT_S, connect
from contracts.store.embedded import server_status
from contracts.store.home import socket_path
from contracts.store.writer import Writer
from tests.faults.proxy import proxy_before
from tests.goals import OPERATOR, make_goal
from tests.stress.background import under_load
from tests.support import start_python, wait_until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def seed() -> int:
    return random.randrange(2**32)


@pytest.fixture
def client(server_of_home: str) -> redis.Redis:
    return connect(server_of_home)


def test_replies_that_come_late_or_are_cut_in_the_middle_apply_each_write_once(
    server_of_home: str, store_home: Path, short_path: Path, tmp_path: Path, seed: int
) -> None:
    del server_of_home
    place = short_path / "proxy"
    with (
        proxy_before(socket_path(store_home), place, seed=seed) as proxy,
        under_load(f"unix://{place}", tmp_path / "load", seed=seed, lease_ms=60_000) as load,
    ):
        proxy.cut = 0.02
        load.goes_on(300)
        proxy.cut, proxy.delay_s = 0.0, 0.02
        load.goes_on(100)
        proxy.delay_s = 0.0
        proxy.cut_all()
        load.goes_on(50)
    assert proxy.cuts > 5
    assert load.report["acknowledged"] > 400
    # a write that was applied twice would meet its own effect, and be refused as a late one
    assert (load.report["late"], load.report["expired"]) == (0, 0)


def test_a_stopped_server_is_waited_for_and_nothing_is_doubled(
    server_of_home: str, store_home: Path, tmp_path: Path, seed: int
) -> None:
    pid = server_status(store_home).pid
    assert pid is not None
    with under_load(server_of_home, tmp_path / "load", seed=seed, lease_ms=500) as load:
        for _ in range(3):
            os.kill(pid, signal.SIGSTOP)
            stands = load.acknowledged()
            waiter = start_python("import time; time.sleep(0.7)")
            waiter.communicate()
            assert load.acknowledged() <= stands + 3  # answered before, and not yet in the log
            os.kill(pid, signal.SIGCONT)
            load.goes_on(30)


def test_functions_that_are_flushed_under_load_are_loaded_again(
    client: redis.Redis, server_of_home: str, tmp_path: Path, seed: int
) -> None:
    with under_load(server_of_home, tmp_path / "load", seed=seed) as load:
        for _ in range(2):
            client.function_flush()
            load.goes_on(30)
    assert "not found" in load.outages().lower()


def test_nothing_is_written_through_another_version_of_the_library(
    client: redis.Redis, server_of_home: str, tmp_path: Path, seed: int
) -> None:
    mine = make_goal(client, "mine", agents=[])
    code, digest = library.source()
    other = code.replace(digest, "f" * 64)
    with under_load(server_of_home, tmp_path / "load", seed=seed) as load:
        client.function_load(other, replace=True)
        wait_until(lambda: "another version" in load.outages(), description="a refusal")
        with pytest.raises(StoreForeignError) as refused:
            mine.pause(operator=OPERATOR, value=True, note="", body="{}")
        assert refused.value.mend == [["labmates", "store", "upgrade"]]
        stands = {key: client.dump(key) for key in client.keys("*")}
        already = load.outages().count("\n")
        wait_until(lambda: load.outages().count("\n") > already + 3, description="more refusals")
        assert {key: client.dump(key) for key in client.keys("*")} == stands
        assert "['labmates', 'store', 'upgrade']" in load.outages()
        with pytest.raises(StoreForeignError):
            library.ensure_library(client)
        library.ensure_library(client, replace=True)
        load.goes_on(50)


def test_an_eviction_policy_set_under_load_is_refused_by_whoever_comes_and_harms_nobody(
    client: redis.Redis, server_of_home: str, tmp_path: Path, seed: int
) -> None:
    with under_load(server_of_home, tmp_path / "load", seed=seed) as load:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(PreconditionError, match="may evict our records") as refused:
            connect(server_of_home)
        assert refused.value.exit_code == 5
        assert refused.value.mend[0][-2:] == ["maxmemory-policy", "noeviction"]
        load.goes_on(50)
        client.config_set("maxmemory-policy", "noeviction")
        connect(server_of_home).close()


# Blocking reads ----------------------------------------------------------------------------------


def test_a_connection_reset_under_a_blocked_read_is_an_outage_at_once(
    client: redis.Redis, server_of_home: str, store_home: Path
) -> None:
    code = (
        "import sys\n"
        "from contracts.store.connect import connect\n"
        "from contracts.store.writer import Writer\n"
        "writer = Writer(connect(sys.argv[1]), 'g', url=sys.argv[1])\n"
        "try:\n    writer.blocking_pop(['k'], 30)\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
        "print(writer.blocking_pop(['k'], 5))\n"
    )
    del store_home
    waiter = start_python(code, server_of_home)
    wait_until(lambda: blocked(client), description="a blocked client", timeout_s=20)
    (found,) = blocked(client)
    client.client_kill(found["addr"])
    wait_until(lambda: blocked(client), description="it blocks again")
    client.rpush("k", "1")
    out, errors = waiter.communicate(timeout=20)
    assert out.split() == [StoreUnreachableError.__name__, "True"], errors


def blocked(client: redis.Redis) -> list[dict[str, str]]:
    return [each for each in client.client_list() if "b" in each["flags"]]


def test_field_case_41_a_read_blocked_at_an_old_server_ends_and_the_next_finds_the_new_one(
    server_of_home: str, store_home: Path, short_path: Path, server_url: str, goal_id: str
) -> None:
    del server_of_home
    place, key = short_path / "proxy", keys.wake(goal_id, "executor")
    assert 0 < BLOCK_LIMIT_S < SOCKET_TIMEOUT_S
    with proxy_before(socket_path(store_home), place, seed=1) as proxy:
        writer = Writer(connect(f"unix://{place}"), goal_id)
        assert writer.blocking_pop([key], 0) is False  # to a server, 0 means for ever
        proxy.target = Path(server_url.removeprefix("unix://"))
        connect(server_url).rpush(key, "1")
        assert writer.blocking_pop([key], 0.2) is False  # it still asks the old one
        proxy.cut_all()
        assert writer.blocking_pop([key], 1) is True
