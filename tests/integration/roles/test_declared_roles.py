"""A role beyond the four is a declaration and a script: no code of the engine knows it."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.errors import RefusedError
from contracts.store.writer import Held
from contracts.words import Role
from roles.goal.context import GoalContext
from roles.lanes.launch import Lanes
from tests.goals import OPERATOR, take
from tests.scenario import body
from tests.support import wait_until
from tests.tiny import RunLanes, make_goal, make_repository
from tests.unit.cli.program import run

PYTHON = Path(sys.base_prefix, "bin", "python3")
DECLARATION = """
name = "{name}"
capability_token = "{token}"
primary_job = "{job}"
reads = {reads}
command = ["{python}", "{script}"]
may_write = []
must_not = ["certify scores"]
"""
NARRATOR = """
import json, os, sys
given = json.load(sys.stdin)
print(json.dumps(dict(os.environ)))
nodes = {each["id"]: each for each in given["graph"]["nodes"]}
ends = {"promotes", "retires"}
for edge in given["graph"]["edges"]:
    if edge["kind"] in ends:
        decision = nodes[edge["source"]]
        print(edge["target"], decision["outcome"], "by", *decision["signers"])
"""
STEWARD = """
import json, sys
print([each["gate_id"] + " " + each["question"] for each in json.load(sys.stdin)["gates"]])
"""
GATE = {"schema_version": "operator_gate_v0", "kind": "owner", "question": "May it go on?"}
APPROVED = body(
    decision={"schema_version": "gate_decision_v0", "verdict": "approved", "shown": "0"}
)
REFUSALS = {"agent_unknown", "role_mismatch", "not_holder", "not_operator", "not_writer"}


def declared(
    folder: Path, name: str, script: str, *, reads: tuple[str, ...] = ("graph", "frontier", "gates")
) -> Path:
    """Write a declaration and its script."""
    place = folder / f"{name}.py"
    place.write_text(script)
    file = folder / f"{name}.toml"
    file.write_text(
        DECLARATION.format(
            name=name,
            token=f"{name}_of_a_test",
            job="say what the evidence says",
            reads=json.dumps(reads),
            python=PYTHON,
            script=place,
        )
    )
    return file


@pytest.fixture
def context(server_of_home: str, tmp_path: Path) -> GoalContext:
    """Give a goal with one change, which reaches the target."""
    del server_of_home
    repository = make_repository(tmp_path / "repo", changes={"best": {"value.txt": "6\n"}})
    return make_goal(repository, "declared")


def test_a_narrator_sums_up_the_evidence_when_a_decision_comes(
    context: GoalContext, server_of_home: str, tmp_path: Path, run_lanes: RunLanes
) -> None:
    file = declared(tmp_path, "narrator", NARRATOR, reads=("graph",))
    run("agent", "add", "narrator-1", "--declare", str(file))
    narrating = Lanes(context)
    narrating.start([("narrator-1", None)])
    try:
        lanes = run_lanes(context)
        wait_until(lambda: lanes.tend() == 0, description="the goal is over", timeout_s=50)
        wait_until(lambda: narrating.tend() == 0, description="the narrator left", timeout_s=20)
    finally:
        narrating.signal()
        for process in narrating.processes():
            process.wait(timeout=20)
    folder = context.folder / "lanes" / "narrator-1"
    environment, *told = (folder / "latest.txt").read_text().splitlines()
    assert told == ["hyp_0001 promoted by evaluator-1 curator-1"]
    receipt = json.loads((folder / "latest.json").read_text())
    assert (receipt["ok"], receipt["revision"]) == (True, int(context.reader.goal()["rev"]))
    assert server_of_home not in environment
    named = {name for name in json.loads(environment) if name.startswith("LABMATES")}
    assert named == {"LABMATES_STEP"}
    assert run("verify").stdout.startswith("sound, done")


def test_a_gate_steward_lists_the_gates_that_wait(context: GoalContext, tmp_path: Path) -> None:
    file = declared(tmp_path, "gate_steward", STEWARD, reads=("gates",))
    run("agent", "add", "steward-1", "--declare", str(file))
    gate = context.writer.open_gate(
        operator=OPERATOR, todo_id="todo_baseline", kind="owner", body=body(gate=GATE)
    )
    running = Lanes(context)
    running.start([("steward-1", None)])
    kept = context.folder / "lanes" / "steward-1" / "latest.txt"

    def lists(*gates: str) -> Callable[[], bool]:
        return lambda: kept.exists() and kept.read_text() == f"{list(gates)}\n"

    try:
        wait_until(lists(f"{gate} May it go on?"), description="the gate is listed", timeout_s=20)
        touched = int(context.reader.item("todo_baseline")["touched"])
        context.writer.decide_gate(
            operator=OPERATOR, gate_id=gate, verdict="approved", touched=touched, body=APPROVED
        )
        wait_until(lists(), description="no gate waits any more", timeout_s=20)
        lane = next(each for each in status()["lanes"] if each["agent_id"] == "steward-1")
        assert (lane["roles"], lane["declared"], lane["state"]) == (
            ["gate_steward"],
            True,
            "waiting",
        )
        assert "steward-1" in run("status").stdout
        assert "gate_steward" in run("roles").stdout
    finally:
        running.signal()
        for process in running.processes():
            process.wait(timeout=20)


def status() -> "dict[str, list[dict[str, object]]]":
    """Give the status of the only goal."""
    found: dict[str, list[dict[str, object]]] = json.loads(run("status", "--json").stdout)
    return found


def test_the_store_refuses_a_declared_role_every_claim_and_every_write(
    context: GoalContext, tmp_path: Path
) -> None:
    run("agent", "add", "narrator-1", "--declare", str(declared(tmp_path, "narrator", NARRATOR)))
    run("agent", "add", "evaluator-1", "--role", "evaluator")
    for words in ([], *(["--role", str(role)] for role in Role)):
        for command in ("should-run", "claim"):
            asked = ["quota", command, *words, "--agent-id", "narrator-1", "--json"]
            answer = json.loads(run(*asked, code=1).stdout)
            assert (answer["should_run"], answer["selected"]) == (False, None)
            assert answer["reason"] == "frontier_empty"
    writer = context.writer
    theirs = take(writer, "evaluator-1")
    held = replace(theirs, agent_id="narrator-1")
    before = context.reader.goal()["rev"]
    mine = {"agent_id": "narrator-1", "hypothesis_id": "hyp_0001"}
    for attempt in (
        lambda: writer.record(held, "baseline_recorded", "{}", commit="b" * 40),
        lambda: writer.release(held, "stopped"),
        lambda: writer.advance(held, "evaluated"),
        lambda: writer.sign(held, "promoted", signature="{}"),
        lambda: writer.decline(held, signature="{}"),
        lambda: writer.spend(held, micro_usd=1, body="{}"),
        lambda: writer.close_source(held, cursor=""),
        lambda: propose(context, replace(held, todo_id="todo_propose", role="proposer")),
        lambda: writer.review(**mine, decision=1, body="{}"),
        lambda: writer.assess(**mine, body="{}"),
        lambda: writer.open_gate(
            operator="narrator-1", role="curator", todo_id="todo_propose", kind="merge", body="{}"
        ),
        lambda: writer.pause(operator="narrator-1", value=True, note="", body="{}"),
    ):
        with pytest.raises(RefusedError) as refused:
            attempt()
        assert refused.value.reason in REFUSALS
    assert context.reader.goal()["rev"] == before


def propose(context: GoalContext, held: Held) -> None:
    """Propose a hypothesis."""
    context.writer.propose(
        held,
        body="{}",
        text_digest="x",
        rank=1.0,
        rank_reason="",
        title="t",
        family="f",
        cursor="",
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(('"narrator"', f'"{role}"') for role in (*Role, "operator", "quota")),
        ("may_write = []", 'may_write = ["decided"]'),
        ('"narrator_of_a_test"', '"evaluator_promoter"'),
        ('"graph"', '"holdout"'),
        ("must_not", "may_sign"),
    ],
)
def test_a_declaration_takes_no_name_and_no_authority_of_the_four(
    context: GoalContext, tmp_path: Path, old: str, new: str
) -> None:
    file = declared(tmp_path, "narrator", NARRATOR)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    run("agent", "add", "narrator-1", "--declare", str(file), code=2)
    assert context.reader.agent_ids() == []
