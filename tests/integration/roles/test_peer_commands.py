"""`review`, `assess` and `todo`, each as people run it: in a process of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.store.connect import connect
from contracts.words import Role
from tests.peers import register
from tests.scenario import PLANS, Scenario
from tests.unit.cli.program import run

BEST, WORSE = PLANS[7], PLANS[2]
TEXT = "Compare only what the first pass left"


@pytest.fixture
def goal(server_of_home: str) -> Iterator[Scenario]:
    """Give a goal with one hypothesis that nobody has tried yet."""
    with connect(server_of_home) as client:
        found = Scenario(client, "peers", (BEST, WORSE)).open()
        register(found, "curator-2", Role.CURATOR)
        while not found.proposed:
            for agent_id in ("evaluator-1", "proposer-1"):
                found.step(agent_id)
        yield found


def document(*words: str, code: int = 0) -> dict[str, Any]:
    """Run a command with `--json`; gives the one document that it prints, and nothing beside it."""
    done = run(*words, "--json", code=code)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def approve(target: str, agent_id: str) -> tuple[str, ...]:
    """Give the words of an approval."""
    return ("review", target, "--verdict", "approve", "--reason", "clear", "--agent-id", agent_id)


def test_a_review_is_told_its_finding_and_shown_wherever_the_decision_is(
    goal: Scenario, tmp_path: Path
) -> None:
    run(*approve("hyp_0001", "curator-2"), code=3)  # before any decision
    assert run("review").stdout == "no decision yet\n"
    goal.play()
    before = goal.reader.goal()["rev"]
    refused = document(*approve("hyp_0001", "stranger"), code=3)
    assert (refused["error"]["details"]["reason"], goal.reader.goal()["rev"]) == (
        "agent_unknown",
        before,
    )
    run(*approve("hyp_0099", "curator-2"), code=2)
    run("review", "hyp_0001", "--verdict", "maybe", code=2)
    run("review", "hyp_0001", "--verdict", "approve", "--agent-id", "curator-2", code=2)

    own = document(*approve("hyp_0001", "evaluator-1"))
    assert (own["independent"], own["why_not"], own["finding"]) == (
        False,
        "decided it",
        "tentative",
    )
    ended = int(goal.reader.item("todo_0001")["ended_rev"])
    first = document(*approve(f"decision:{ended}", "curator-2"))
    assert (first["independent"], first["finding"], first["reused"]) == (True, "confirmed", False)
    again = document(*approve("hyp_0001", "curator-2"))
    assert again == first | {"reused": True}
    assert int(goal.reader.goal()["rev"]) == first["revision"] == own["revision"] + 1

    (found,) = document("review", "hyp_0001")["findings"]
    assert [each["reviewer"] for each in found["reviews"]] == ["evaluator-1", "curator-2"]
    assert [each["status"] for each in document("review")["findings"]] == ["confirmed", "tentative"]
    graph = document("graph")
    nodes = {each["id"]: each for each in graph["nodes"]}
    review = f"review:{first['revision']}"
    assert (nodes[review]["kind"], nodes[review]["independent"]) == ("review", True)
    assert nodes[f"decision:{ended}"]["finding"] == "confirmed"
    edge = {"kind": "reviews", "source": review, "target": f"decision:{ended}"}
    assert edge in [{name: each[name] for name in edge} for each in graph["edges"]]
    run("report", "--out", str(tmp_path / "out"))
    report = (tmp_path / "out" / "report.md").read_text().split("## Findings")[1]
    assert "| hyp_0001 | promoted | confirmed |" in report
    assert "evaluator-1: approve (decided it); curator-2: approve |" in report
    assert "finding    confirmed" in run("attempt", "show", "1").stdout
    run("verify")


def test_an_assessment_makes_a_finding_stale_and_is_told_once(goal: Scenario) -> None:
    goal.play()
    document(*approve("hyp_0001", "curator-2"))
    words = ("assess", "hyp_0001", "weakens", "--ref", "attempt:1", "--reason", "slow on odd sizes")
    for agent_id, code in (("executor-1", 3), ("stranger", 3), ("", 2)):
        run(*words, "--agent-id", agent_id, code=code)
    run("assess", "hyp_0001", "praises", "--ref", "x", "--reason", "y", code=2)
    run("assess", "hyp_0001", "weakens", "--reason", "y", "--agent-id", "proposer-1", code=2)
    run("assess", "hyp_0099", *words[2:], "--agent-id", "proposer-1", code=3)
    first = document(*words, "--agent-id", "proposer-1")
    assert (first["verdict"], first["reused"]) == ("weakens", False)
    assert document(*words, "--agent-id", "proposer-1") == first | {"reused": True}
    assert int(goal.reader.goal()["rev"]) == first["revision"]
    (found,) = document("review", "hyp_0001")["findings"]
    assert (found["status"], found["why"]) == (
        "tentative",
        f"stale: new evidence at revision {first['revision']}",
    )
    run("verify", "--records")


def test_an_idea_is_added_once_listed_shown_and_taken_up(goal: Scenario) -> None:
    run("todo", "add", "  ", code=2)
    run("todo", "add", TEXT, "--driver", "magic", code=2)
    run("todo", "add", TEXT, "--driver", "files", code=2)  # which needs a prepared change
    before = goal.reader.goal()["rev"]
    for words in (
        ("w" * 8001, "--change", "two"),
        ("bad \udcff byte", "--change", "two"),
        (TEXT, "--family", "f" * 61, "--change", "two"),
        (TEXT, "--change", "../two"),
    ):
        run("todo", "add", *words, "--driver", "files", code=2)
    run("assess", "hyp_0001", "weakens", "--reason", " ", "--ref", "attempt:1",
        "--agent-id", "proposer-1", code=2)  # fmt: skip
    run("gate", "open", "todo_0001", "--kind", "owner", "--reason", "", code=2)
    assert goal.reader.goal()["rev"] == before
    asked = ("todo", "add", TEXT, "--title", "two passes", "--driver", "files", "--change", "two")
    assert document(*asked) == {
        "added": True,
        "todo_id": "todo_idea_0001",
        "title": "two passes",
    }
    before = goal.reader.goal()["rev"]
    told = document(*asked, code=1)
    assert told == {"added": False, "duplicate_of": "todo_idea_0001"}
    assert goal.reader.goal()["rev"] == before
    assert run(*asked, code=1).stdout == "not added: todo_idea_0001 says the same\n"
    listed = {each["todo_id"]: each for each in document("todo", "list")["todos"]}
    assert listed["todo_idea_0001"]["kind"] == "idea"
    assert "todo_baseline" not in listed
    assert "todo_baseline" in run("todo", "list", "--all").stdout
    shown = document("todo", "show", "todo_idea_0001")
    assert (shown["text"], shown["state"]) == (TEXT, "open")
    assert TEXT in run("todo", "show", "todo_idea_0001").stdout
    run("todo", "show", "todo_idea_0002", code=2)
    answer = json.loads(run("quota", "should-run", "--agent-id", "proposer-1", "--json").stdout)
    assert answer["selected"]["todo_id"] == "todo_idea_0001"
