"""A source that ends before the target is met: one successor, its no on record, the gap on show."""

import json
from pathlib import Path

from contracts.events import Released, SuccessorAdded
from tests.integration.test_whole_run import replayed, until_over
from tests.tiny import RunLanes, make_goal, make_repository
from tests.unit.cli.program import run


def test_an_unmet_target_never_ends_in_silence(
    server_of_home: str, tmp_path: Path, run_lanes: RunLanes
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo", changes={"double": {"value.txt": "2\n"}})
    context = make_goal(repository, "unmet")
    until_over(run_lanes(context), context)
    state = replayed(context)
    events = [state.events[revision] for revision in sorted(state.events)]
    (added,) = (each for each in events if isinstance(each, SuccessorAdded))
    before = state.events[added.revision - 1]
    assert (before.todo_id, added.after_todo_id) == (added.after_todo_id, "todo_0001")
    (no,) = (
        each for each in events if isinstance(each, Released) and each.reason == "no_follow_up"
    )
    assert (no.todo_id, no.role) == (added.todo_id, "proposer")
    assert context.reader.item(str(added.todo_id))["state"] == "closed"

    found = json.loads(run("status", "--json").stdout)
    best = found["best"]["value"]
    missing = f"{5 - best:.2f} of 5.00"
    assert (found["phase"], found["missing"]) == ("escalate", missing)
    assert f"Missing        {missing}\n" in run("status").stdout
    told = json.loads(
        run("quota", "should-run", "--agent-id", "proposer-1", "--json", code=1).stdout
    )
    assert told["reason"] == "goal_escalated"
    assert abs(told["gap"]["missing"] - (5 - best)) < 1e-9
    run("report", "--out", str(tmp_path / "out"))
    assert f"- Missing: {missing}\n" in (tmp_path / "out" / "report.md").read_text()
    final = (tmp_path / "out" / "final_report.md").read_text()
    assert final.startswith("# escalate\n")
    assert f"- remaining gap: {missing}\n" in final
    assert run("verify", code=1).stdout.startswith("sound, not done (escalate)")
