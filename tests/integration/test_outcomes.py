"""Outcomes without a row of their own, by a whole run: reworks of the guard, no change at all."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from contracts.events import RetryRecorded, Signed, Transitioned
from projection.verify import verify
from tests.integration.test_whole_run import replayed, until_over
from tests.tiny import RunLanes, make_goal, make_repository

# The command's own way: it mends what the guard said, goes on being wrong, or does nothing.
EDIT = """
import json, os, pathlib
brief = json.loads(pathlib.Path(os.environ["LABMATES_BRIEF"]).read_text())
with open({seen!r}, "a") as file:
    file.write(json.dumps([brief["title"], brief["feedback"]]) + "\\n")
value = pathlib.Path("value.txt")
if brief["title"] == "learns":
    value.write_text("2\\n" if "odd numbers" in (brief["feedback"] or "") else "3\\n")
elif brief["title"] == "stubborn":
    value.write_text("9\\n")
"""
GUARD = """
import sys
if int(float(open("value.txt").read())) % 2 and open("value.txt").read() != "1\\n":
    print("the guard allows no odd numbers")
    sys.exit(1)
"""
CHANGES = {name: {"value.txt": "1\n"} for name in ("learns", "stubborn", "idle")}


@pytest.mark.timeout(200)
def test_a_guard_is_reworked_twice_with_its_words_in_the_brief_and_no_change_is_tried_twice(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    seen = tmp_path / "seen.jsonl"
    edit = tmp_path / "edit.py"
    edit.write_text(EDIT.format(seen=str(seen)))
    (tmp_path / "guard.py").write_text(GUARD)
    python = shlex.quote(str(Path(sys.base_prefix, "bin", "python3")))
    repository = make_repository(
        tmp_path / "repo",
        changes=CHANGES,
        command=f"{python} {shlex.quote(str(edit))}",
        guard=f"python3 {tmp_path / 'guard.py'}",
    )
    context = make_goal(repository, "outcomes")
    until_over(run_lanes(context), context)

    state = replayed(context)
    items = [f"todo_{number:04d}" for number in (1, 2, 3)]
    ended = {title: state.items[todo] for title, todo in zip(CHANGES, items, strict=True)}
    told = [json.loads(line) for line in seen.read_text().splitlines()]
    events = list(context.follower.by_revision.values())

    def reasons(title: str) -> list[str]:
        return [
            str(each.reason)
            for each in events
            if isinstance(each, Transitioned)
            and each.todo_id == ended[title].todo_id
            and each.to_state == "needs_retry"
        ]

    assert ended["learns"].state == "promoted"
    assert reasons("learns") == ["guard_rework"]
    briefs = [feedback for title, feedback in told if title == "learns"]
    assert briefs[0] is None
    assert "the guard allows no odd numbers" in briefs[1]

    assert ended["stubborn"].state == "retired"
    assert reasons("stubborn") == ["guard_rework", "guard_rework"]
    assert sum(title == "stubborn" for title, _ in told) == 3
    assert [
        each.to_state
        for each in events
        if isinstance(each, Transitioned) and each.todo_id == ended["stubborn"].todo_id
    ][-1] == "contradicted"

    assert ended["idle"].state == "retired"
    packets = [
        each.retry.stop_reason
        for each in events
        if isinstance(each, RetryRecorded) and each.todo_id == ended["idle"].todo_id
    ]
    assert packets == ["no_change", "no_change"]
    (last,) = [
        each.signature.reason
        for each in events
        if isinstance(each, Signed)
        and each.todo_id == ended["idle"].todo_id
        and each.to_state == "retired"
    ]
    assert last == "no_follow_up"
    assert verify(context.reader).exit_code(records_only=True) == 0
