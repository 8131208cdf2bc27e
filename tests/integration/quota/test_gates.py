"""Gates through the program: who opens, what a decision is bound to, what outlives what."""

import json
import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from contracts.errors import RefusedError
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, server_status
from contracts.store.reader import Reader
from contracts.words import Stream
from projection.verify import verify
from tests.integration.quota.goals import Goal
from tests.peers import assess
from tests.property.test_replay_accepts_the_store import Chaos
from tests.scenario import PLANS, Scenario
from tests.support import wait_until
from tests.unit.cli.program import SCRIPT, run

BEST = PLANS[7]
EVERYBODY = ("evaluator-1", "proposer-1", "executor-1", "curator-1")


def opened(todo: str, *more: str, code: int = 0) -> str:
    """Open a gate through the program; gives its id, or what was said."""
    words = ("gate", "open", todo, "--kind", "merge", "--reason", "May it?", "--json", *more)
    done = run(*words, code=code)
    return str(json.loads(done.stdout)["gate_id"]) if code == 0 else done.stdout + done.stderr


def shown(gate: str) -> str:
    """Give the hash that `gate show` prints."""
    return str(json.loads(run("gate", "show", gate, "--json").stdout)["hash"])


def kinds(reader: Reader, stream: Stream) -> list[str]:
    """Give the types of a stream's events."""
    return [fields["type"] for _, fields in reader.entries(stream)]


def local_second(entry_id: str) -> str:
    """Give the store's time of an event as a person reads it."""
    at = datetime.fromtimestamp(int(entry_id.partition("-")[0]) // 1000, tz=UTC)
    return at.astimezone().isoformat(" ")


def decisions(reader: Reader) -> int:
    """Count what persons decided."""
    return kinds(reader, Stream.OPERATOR).count("gate_decided")


@pytest.mark.parametrize("role", ["curator", "evaluator"])
def test_a_curator_or_an_evaluator_asks_in_its_own_stream(goal: Goal, role: str) -> None:
    gate = opened(goal.propose("One"), "--agent-id", f"{role}-1")
    reader = Reader(goal.writer.client, goal.goal_id)
    event = reader.entries(Stream(role))[-1][1]
    assert (event["type"], event["agent"], event["gate"]) == ("gate_opened", f"{role}-1", gate)


@pytest.mark.parametrize("role", ["proposer", "executor"])
def test_a_proposer_or_an_executor_may_not_ask(goal: Goal, role: str) -> None:
    todo = goal.propose("One")
    said = opened(todo, "--agent-id", f"{role}-1", code=3)
    assert "curator or evaluator" in said
    assert Reader(goal.writer.client, goal.goal_id).open_gates() == []


@pytest.mark.parametrize("role", ["curator", "proposer", "executor", "evaluator"])
def test_no_agent_of_a_role_decides_in_its_own_name(goal: Goal, role: str) -> None:
    gate = opened(goal.propose("One"))
    reader = Reader(goal.writer.client, goal.goal_id)
    touched, before = int(reader.item("todo_0001")["touched"]), reader.goal()["rev"]
    for name in (f"{role}-1", f"operator:{role}-1"):
        if name.startswith("operator:"):  # an agent that took a person's name is still an agent
            goal.writer.register(operator="operator:test", agent_id=name, roles=[role], body="{}")
            before = reader.goal()["rev"]
        with pytest.raises(RefusedError) as refused:
            goal.writer.decide_gate(
                operator=name, gate_id=gate, verdict="approved", touched=touched, body="{}"
            )
        assert refused.value.reason == "not_operator"
    assert (reader.gate(gate)["status"], reader.goal()["rev"]) == ("open", before)
    assert decisions(reader) == 0


def test_field_case_106_a_decision_on_what_changed_since_it_was_shown_is_refused(
    goal: Goal,
) -> None:
    reader = Reader(goal.writer.client, goal.goal_id)
    todo = goal.propose("One")
    gate = opened(todo)
    digest, old = shown(gate), reader.item(todo)["touched"]
    seen = ("--agent-id", "proposer-1", "--ref", "attempt:1", "--reason", "seen elsewhere")
    run("assess", reader.item(todo)["hyp"], "weakens", *seen)
    said = run("gate", "approve", gate, digest, code=3).stderr
    assert old in said
    assert reader.item(todo)["touched"] in said
    assert decisions(reader) == 0
    run("gate", "approve", gate, shown(gate))


def test_peer_case_118_of_two_who_decide_at_once_one_is_told_who_was_first(goal: Goal) -> None:
    reader = Reader(goal.writer.client, goal.goal_id)
    for number, todo in enumerate([goal.propose(f"Idea {number}") for number in range(3)]):
        gate = opened(todo)
        digest = shown(gate)
        both = [
            subprocess.Popen(
                [SCRIPT, "gate", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for words in (("approve", gate, digest), ("reject", gate, "--reason", "no"))
        ]
        said = [each.communicate(timeout=30)[1] for each in both]
        assert sorted(each.returncode for each in both) == [0, 3]
        (event,) = [e for e in reader.entries(Stream.OPERATOR) if e[1].get("gate") == gate][1:]
        (loser,) = [text for text, each in zip(said, both, strict=True) if each.returncode]
        told = " ".join(loser.split())
        assert f"decided rev {event[1]['rev']}, {local_second(event[0])}" in told
        assert f"{gate} is {reader.gate(gate)['status']} already, by operator:" in loser
        assert decisions(reader) == number + 1


def test_a_gated_item_keeps_its_state_and_the_second_approval_is_refused(goal: Goal) -> None:
    reader = Reader(goal.writer.client, goal.goal_id)
    todo = goal.propose("One")
    assert reader.should_run("executor-1")["should_run"] == "1"
    state = reader.item(todo)["state"]
    gate = opened(todo)
    assert reader.should_run("executor-1")["open_gate"] == gate
    assert reader.should_run("executor-1")["should_run"] == "0"
    assert reader.item(todo)["state"] == state
    digest = shown(gate)
    run("gate", "approve", gate, digest)
    said = run("gate", "approve", gate, digest, code=3).stderr
    assert f"{gate} is approved already, by operator:" in said
    assert decisions(reader) == 1
    assert goal.claimed("executor-1").todo_id == todo


def at_owner_gate(client: object, goal_id: str) -> tuple[Scenario, str]:
    """Bring one good hypothesis to the owner's gate; gives its gate."""
    goal = Chaos(client, goal_id, (BEST,), policy={"owner_gate": True})  # type: ignore[arg-type]
    goal.open()
    for _ in range(30):
        for agent_id in EVERYBODY:
            goal.step(agent_id)
        if goal.reader.open_gates():
            break
    (gate,) = goal.reader.open_gates()
    return goal, gate


@pytest.fixture
def on_home(
    server_of_home: str, goal_id: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Scenario, str]:
    """A goal at its owner's gate, on the embedded server of this test's home."""
    monkeypatch.setenv("LABMATES_GOAL_ID", goal_id)
    return at_owner_gate(connect(server_of_home), goal_id)


def test_field_case_107_an_approval_outlives_a_killed_server_and_lets_the_item_pass_once(
    on_home: tuple[Scenario, str], store_home: Path
) -> None:
    goal, gate = on_home
    assert not any(goal.step(agent_id) for agent_id in ("evaluator-1", "curator-1"))
    run("gate", "approve", gate, shown(gate))
    pid = server_status(store_home).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), description="the server is gone")
    ensure_server(store_home)
    goal.client.connection_pool.disconnect()
    assert goal.reader.open_gates() == []
    goal.play()
    assert goal.reader.item("todo_0001")["state"] == "promoted"
    assert kinds(goal.reader, Stream.EVALUATOR).count("gate_opened") == 1
    assert decisions(goal.reader) == 1
    assert verify(goal.reader).exit_code(records_only=True) == 0


def test_an_observation_after_the_owners_word_asks_the_owner_again_in_the_same_step(
    on_home: tuple[Scenario, str],
) -> None:
    goal, first = on_home
    run("gate", "approve", first, shown(first))
    assess(goal, "proposer-1", "hyp_0001", "weakens")
    (second,) = goal.reader.open_gates()
    assert second != first
    assert not any(goal.step(agent_id) for agent_id in ("evaluator-1", "curator-1"))
    run("gate", "approve", first, "0" * 8, code=3)
    run("gate", "approve", second, shown(second))
    goal.play()
    assert goal.reader.item("todo_0001")["state"] == "promoted"
    assert verify(goal.reader).exit_code(records_only=True) == 0


def test_a_rejection_ends_the_item_with_the_decision_as_its_evidence(
    on_home: tuple[Scenario, str],
) -> None:
    goal, gate = on_home
    run("gate", "reject", gate, "--reason", "too much code")
    decision = goal.reader.entries(Stream.OPERATOR)[-1][1]["rev"]
    for _ in range(4):
        for agent_id in ("evaluator-1", "proposer-1"):
            goal.step(agent_id)
    assert goal.reader.item("todo_0001")["state"] == "retired"
    last = [fields for _, fields in goal.reader.entries(Stream.EVALUATOR)][-2:]
    signed = next(each for each in last if each["type"] == "signed")
    assert signed["ref"] == decision
    assert "operator_rejected" in signed["body"]
    assert verify(goal.reader).exit_code(records_only=True) == 0
