"""A server in cluster mode: every call of a goal touches one slot, or it would be refused there."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from contracts.errors import PreconditionError
from contracts.store import keys
from contracts.store.backup import collect, read_backup, restore_goals, write_backup
from contracts.store.connect import connect
from contracts.store.rebuild import diagnose
from projection.verify import verify
from tests.goals import make_goal
from tests.scenario import Scenario
from tests.support import wait_until

SLOTS = 16384


@contextmanager
def node() -> Iterator[int]:
    """Run a server in cluster mode on a free port of loopback; it holds no slot yet."""
    binary = shutil.which("redis-server")
    assert binary, "redis-server is missing; apt-get install -y redis-server"
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="lm-", dir="/tmp"))
    words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    words += ["--cluster-enabled", "yes", "--appendonly", "no", "--loglevel", "warning"]
    server = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port), description=f"the node on port {port} answers")
        yield port
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


def free_port() -> int:
    """Find a port whose twin for the cluster's own traffic (10000 more) is free too."""
    for port in range(20000, 50000, 7):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            return port
    message = "no pair of ports is free"
    raise AssertionError(message)


def answers(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def cluster(port: int, *words: object) -> object:
    with redis.Redis(port=port, decode_responses=True) as client:
        return client.execute_command("CLUSTER", *map(str, words))


@pytest.fixture(scope="module")
def cluster_url() -> Iterator[str]:
    """Give the address of one node that holds every slot."""
    with node() as port:
        cluster(port, "ADDSLOTSRANGE", 0, SLOTS - 1)
        wait_until(
            lambda: "cluster_state:ok" in str(cluster(port, "INFO")), description="the slots"
        )
        yield f"redis://127.0.0.1:{port}/0"


def test_field_case_28_every_call_of_a_goal_touches_one_slot(
    cluster_url: str, goal_id: str, tmp_path: Path
) -> None:
    with connect(cluster_url) as client:
        goal = Scenario(client, goal_id).open().play()
        assert int(goal.reader.goal()["promotions"]) > 0
        assert not verify(goal.reader).violations
        assert diagnose(goal.reader).findings == ()
        file = tmp_path / "goal.jsonl"
        write_backup(file, [collect(goal.reader)])
        names = [str(key) for key in client.scan_iter(match=f"{keys.prefix(goal_id)}*")]
        client.delete(*names)
        restore_goals(client, read_backup(file))
        assert not verify(goal.reader).violations


def test_keys_of_two_slots_in_one_call_are_refused_there(cluster_url: str, goal_id: str) -> None:
    with connect(cluster_url) as client:
        make_goal(client, goal_id, agents=[("executor-1", "executor")])
        declared = keys.declared("claim", goal_id, agent_id="executor-1", role="executor")
        declared.append(keys.item("another", "todo_0001"))
        with pytest.raises(redis.ResponseError, match=r"same slot|CROSSSLOT"):
            client.fcall("lm_claim_v1", len(declared), *declared, "agent", "executor-1")
        # and one that is built in the function, past the declared ones
        with pytest.raises(redis.ResponseError, match="same slot"):
            client.eval("#!lua\nreturn redis.call('GET', '{b}')", 1, "{a}")


def test_a_cluster_of_several_nodes_is_refused_at_the_start_in_one_line() -> None:
    with ExitStack() as stack:
        ports = [stack.enter_context(node()) for _ in range(3)]
        part = SLOTS // 3
        for number, port in enumerate(ports):
            last = SLOTS - 1 if number == 2 else (number + 1) * part - 1
            cluster(port, "ADDSLOTSRANGE", number * part, last)
        for port in ports[1:]:
            cluster(ports[0], "MEET", "127.0.0.1", port)
        wait_until(
            lambda: "cluster_size:3" in str(cluster(ports[0], "INFO")),
            description="the nodes know each other",
            timeout_s=20,
        )
        with pytest.raises(PreconditionError) as refused:
            connect(f"redis://127.0.0.1:{ports[0]}/0")
    assert "a cluster of 3 nodes" in refused.value.message
    assert refused.value.exit_code == 5


def test_all_keys_of_a_goal_share_its_hash_tag() -> None:
    made = [
        make("g", *(["x"] * (make.__code__.co_argcount - 1)))
        for name, make in vars(keys).items()
        if callable(make) and not name.startswith("_") and name not in {"declared", "Sequence"}
    ]
    assert len(made) > 10
    assert [key for key in made if not str(key).startswith("{g}")] == []
    everything = [
        *keys.declared("advance", "g", agent_id="a", todo_id="t", role="executor"),
        *keys.declared("claim", "g", agent_id="a"),
    ]
    assert [key for key in everything if not key.startswith("{g}:")] == []
