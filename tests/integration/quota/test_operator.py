"""The person's commands on a real server: roster, pause, gates, status."""

import fcntl
import json
import os
import pty
import subprocess
import termios
import time
from pathlib import Path

import pytest

from contracts.store import keys
from contracts.store.reader import Reader
from contracts.words import Stream
from tests.integration.quota.goals import Goal
from tests.support import wait_until
from tests.unit.cli.program import SCRIPT, run

HOSTILE = "\x1b]52;c;aGk=\x07\x1b[2J\x9b6n\u202eevil\r"


def last(goal: Goal, stream: Stream) -> dict[str, str]:
    """Give the newest event of a stream."""
    return Reader(goal.writer.client, goal.goal_id).entries(stream)[-1][1]


def hold(goal: Goal, todo: str, question: str = "May it?") -> str:
    """Open a gate through the program; gives its id."""
    words = ("gate", "open", todo, "--kind", "owner", "--reason", question, "--json")
    return str(json.loads(run(*words).stdout)["gate_id"])


def shown(gate: str) -> str:
    """Give the hash that `gate show` prints."""
    return str(json.loads(run("gate", "show", gate, "--json").stdout)["hash"])


def test_the_roster_is_written_by_add_and_remove(goal: Goal) -> None:
    run("agent", "add", "solo", "--role", "executor,proposer")
    event = last(goal, Stream.OPERATOR)
    assert event["type"] == "agent_registered"
    body = json.loads(event["body"])["registration"]
    assert body["roles"] == ["proposer", "executor"]
    listed = json.loads(run("agent", "list", "--json").stdout)["agents"]
    assert {each["agent_id"]: each["roles"] for each in listed}["solo"] == ["proposer", "executor"]
    run("agent", "remove", "solo")
    assert json.loads(last(goal, Stream.OPERATOR)["body"])["registration"]["removed"] is True
    assert "solo" not in run("agent", "list").stdout


def test_an_agent_with_a_claim_cannot_be_removed(goal: Goal) -> None:
    goal.propose("One")
    goal.claimed("executor-1")
    done = run("agent", "remove", "executor-1", code=3)
    assert "todo_0001" in done.stderr


@pytest.mark.parametrize("name", ["Solo", "a b", "", "../x", "-x", "a" * 64, "a\nb", "a:b"])
def test_a_name_that_cannot_be_an_agent_is_wrong_usage(goal: Goal, name: str) -> None:
    before = last(goal, Stream.OPERATOR)
    run("agent", "add", "--role", "executor", "--", name, code=2)
    assert last(goal, Stream.OPERATOR) == before


def test_an_unknown_role_is_wrong_usage_and_names_the_roles(goal: Goal) -> None:
    done = run("agent", "add", "x", "--role", "boss", code=2)
    assert "labmates: there is no role 'boss'\n" in done.stderr
    assert "curator, proposer, executor, evaluator" in done.stderr


def test_a_gate_is_approved_with_the_hash_that_was_shown(goal: Goal) -> None:
    gate = hold(goal, goal.propose("One"))
    digest = shown(gate)
    assert f"labmates gate approve {gate} {digest}\n" in run("gate", "show", gate).stdout
    done = run("gate", "approve", gate, digest)
    event = last(goal, Stream.OPERATOR)
    assert event["type"] == "gate_decided"
    assert json.loads(event["body"])["decision"]["shown"] == digest
    assert f"rev {event['rev']}, bound to {digest}" in done.stdout
    assert run("gate", "list").stdout.startswith("no gate is open")


def test_a_stale_hash_is_refused_with_the_old_and_the_new_revision(goal: Goal) -> None:
    todo = goal.propose("One")
    gate = hold(goal, todo)
    digest = shown(gate)
    client = goal.writer.client
    old = Reader(client, goal.goal_id).item(todo)["touched"]
    client.hset(keys.item(goal.goal_id, todo), "touched", "999")
    done = run("gate", "approve", gate, digest, code=3)
    assert done.stderr.startswith(f"labmates: {gate} has changed since {digest}\n")
    assert f"shown      {digest}, rev {old}\n" in done.stderr
    assert ", rev 999\n" in done.stderr
    assert last(goal, Stream.OPERATOR)["type"] == "gate_opened"


def test_a_gate_needs_a_hash_where_nobody_can_be_asked(goal: Goal) -> None:
    gate = hold(goal, goal.propose("One"))
    done = run("gate", "approve", gate, code=2)
    assert f"labmates gate show {gate}\n" in done.stderr
    run("gate", "approve", gate, "zz", code=2)


def test_on_a_terminal_a_gate_is_shown_and_the_person_is_asked(goal: Goal) -> None:
    gate = hold(goal, goal.propose("One"), HOSTILE)
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [SCRIPT, "gate", "approve", gate], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    while b"Approve this?" not in seen:
        seen += os.read(ours, 4096)
    os.write(ours, b"y\n")
    assert asked.wait(timeout=20) == 0
    os.close(ours)
    assert b"\x1b]52" not in seen
    assert b"\\x1b]52;c;aGk=\\x07" in seen
    assert last(goal, Stream.OPERATOR)["type"] == "gate_decided"


def test_a_rejected_gate_keeps_the_reason_and_a_second_decision_is_refused(goal: Goal) -> None:
    gate = hold(goal, goal.propose("One"))
    run("gate", "reject", gate, code=2)
    run("gate", "reject", gate, "--reason", "  ", code=2)
    run("gate", "reject", gate, "--reason", "too much code")
    assert json.loads(last(goal, Stream.OPERATOR)["body"])["decision"]["reason"] == "too much code"
    done = run("gate", "reject", gate, "--reason", "again", code=3)
    assert f"{gate} is rejected already" in done.stderr


def test_unknown_gates_and_todos_are_named(goal: Goal) -> None:
    for words in (("show", "gate_9"), ("approve", "gate_9", "0" * 8)):
        assert "there is no gate 'gate_9'" in run("gate", *words, code=2).stderr
    opened = ("gate", "open", "todo_9", "--kind", "owner", "--reason", "x")
    assert "there is no todo 'todo_9'" in run(*opened, code=2).stderr


def test_an_ended_item_cannot_be_held(goal: Goal) -> None:
    opened = ("gate", "open", "todo_baseline", "--kind", "owner", "--reason", "x")
    assert "todo_baseline is closed already" in run(*opened, code=3).stderr


EVALUATION = {
    "attempt": 1,
    "evidence_revision": 9,
    "measurement": {
        "split": "dev",
        "commit": "0" * 40,
        "eval_status": "scored",
        "primary_metric_status": "improved",
        "value": 14.6,
        "spread": {"value": 14.6, "low": 13.54, "high": 16.02, "n": 12, "level": 0.95},
        "ratio": {"value": 2.05, "low": 1.93, "high": 2.12, "n": 12, "level": 0.95},
    },
    "checks": [{"name": "exit_code", "actual": 0, "expected": "= 0", "pass": True}],
    "verdict": "improved",
}


def test_a_gate_shows_the_numbers_and_checks_it_rests_on(goal: Goal) -> None:
    todo = goal.propose("One")
    gate = hold(goal, todo)
    fields = {"type": "evaluation_recorded", "todo": todo, "rev": "99"}
    body = json.dumps({"evaluation": EVALUATION})
    stream = keys.events(goal.goal_id, "evaluator")
    for each in ("{}", body):
        flat = [part for pair in (fields | {"body": each}).items() for part in pair]
        goal.writer.client.execute_command("XADD", stream, "*", *flat)  # type: ignore[no-untyped-call]
    text = run("gate", "show", gate).stdout
    assert "dev                 14.60x  [13.54, 16.02]\n" in text
    assert "  against champion    2.05  [1.93, 2.12]\n" in text
    assert "exit_code  0       = 0       pass\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_status_shows_what_waits_for_the_person_the_frontier_and_the_lanes(goal: Goal) -> None:
    gate = hold(goal, goal.propose("Held"))
    goal.propose("Free to take", rank=2.0)
    text = run("status").stdout
    assert text.startswith(f"{goal.goal_id}   iterate   rev ")
    assert f"               labmates gate show {gate}\n" in text
    assert "FRONTIER     1 runnable, selector balanced\n1  hyp_0002  Free to take\n" in text
    assert "executor-1   down" in text
    assert text.endswith("Start them: labmates up\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_lane_shows_what_it_says_only_while_its_process_is_alive(goal: Goal) -> None:
    client = goal.writer.client
    says = {"state": "working", "doing": "attempt 1", "since_ms": str(time.time_ns() // 10**6)}
    client.hset(keys.lane(goal.goal_id, "executor-1"), mapping=says)  # type: ignore[arg-type]
    lane = json.loads(run("status", "--json").stdout)["lanes"][2]
    assert (lane["agent_id"], lane["state"], lane["doing"]) == ("executor-1", "down", "")
    born = {"inc": "here/1/1", "host": "here", "pid": "1", "start": "1"}
    goal.writer.enlist(agent_id="executor-1", role="executor", incarnation=born, dead="")
    lane = json.loads(run("status", "--json").stdout)["lanes"][2]
    assert (lane["state"], lane["doing"]) == ("working", "attempt 1")


def test_a_watched_status_without_a_terminal_prints_one_line_an_event(
    goal: Goal, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        watching = subprocess.Popen([SCRIPT, "status", "--watch"], stdout=file, text=True)
    wait_until(lambda: "BUDGET" in out.read_text(), description="the first screen")
    run("pause", "--reason", "lunch")
    wait_until(lambda: "  paused\n" in out.read_text(), description="the line of the pause")
    watching.send_signal(2)
    assert watching.wait(timeout=10) == 0
    assert out.read_text().count("BUDGET") == 1
    assert "\x1b" not in out.read_text()


def test_a_watched_status_on_a_terminal_is_redrawn_in_place(goal: Goal) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(
        theirs,
        termios.TIOCSWINSZ,
        (40).to_bytes(2, "little") + (80).to_bytes(2, "little") + b"\0" * 4,
    )
    watching = subprocess.Popen([SCRIPT, "status", "--watch"], stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = b""
    while seen.count(b"\x1b[H\x1b[J") < 2:
        seen += os.read(ours, 4096)
    watching.send_signal(2)
    assert watching.wait(timeout=10) == 0
    os.close(ours)
    assert goal.goal_id.encode() in seen


def test_field_case_143_escapes_in_titles_reasons_and_questions_are_inert(goal: Goal) -> None:
    todo = goal.propose(f"Title {HOSTILE}", rank_reason=HOSTILE)
    screens = [run("quota", "should-run", "--agent-id", "executor-1").stdout, run("status").stdout]
    screens.append(run("quota", "frontier", "--agent-id", "executor-1").stdout)
    gate = hold(goal, todo, f"Question {HOSTILE}")
    screens += [run("gate", "list").stdout, run("gate", "show", gate).stdout]
    screens += [run("gate", "show", HOSTILE, code=2).stderr]
    for text in screens:
        assert "\\x1b]52;c;aGk=" in text
        assert not any(char in text for char in "\x1b\x07\x9b\r\u202e")
    run("pause", "--reason", HOSTILE)
    paused = run("quota", "should-run", "--agent-id", "executor-1", code=1).stdout
    assert "\\u202eevil" in paused
    assert "\x1b" not in paused + run("status").stdout
