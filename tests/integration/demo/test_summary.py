"""The closing summary of a goal that was played to its end, in a real store."""

from dataclasses import replace
from pathlib import Path

import pytest
import redis

from demo.lines import event_line
from demo.published import Published
from demo.summary import Ending, summary_document, summary_lines
from demo.watch import watch
from tests.scenario import Scenario


@pytest.fixture
def ending(redis_client: redis.Redis, goal_id: str) -> Ending:
    played = Scenario(redis_client, goal_id).open().play()
    watched = watch(played.reader)
    watched.catch_up()
    return Ending(
        state=watched.state,
        view=watched.view(),
        stopped="",
        live=(),
        claims={},
        workspace=Path("/somewhere/knn-1"),
        preset="knn",
        published=Published(23.4, "", "Arbor with a model: 7.77x dev, 7.22x held-out"),
        several=False,
    )


def test_every_ending_is_named_with_its_reason(ending: Ending) -> None:
    lines = summary_lines(ending)
    text = "\n".join(lines)
    assert lines[0].startswith("done: 14.38x on held-out [")
    assert "  kept       3   product 2.37x, select 5.87x, block minima 14.38x" in lines
    assert "  refuted    3   loop (slower), projection (wrong answers), warm-up (boundary)" in lines
    assert "  no gain    1   norms: low end 0.97 against the champion, needed 1.05" in lines
    assert "  no score   1   autotune (two timeouts)" in lines
    assert "  published  23.4x held-out by the published, laxer protocol" in text
    assert "7.22x held-out)" in text
    assert "All lanes ended, no claim is open." in lines
    assert [line for line in lines if len(line) > 80] == []
    assert text.isascii()


def test_the_numbers_of_the_endings_add_up_to_the_hypotheses(ending: Ending) -> None:
    rows = [line.split() for line in summary_lines(ending) if line.startswith("  ")]
    counts = [
        int(row[2 if row[0] == "no" else 1]) for row in rows if row[0] in {"kept", "refuted", "no"}
    ]
    assert sum(counts) == ending.view.counts["hypotheses"]


def test_commands_name_their_goal_where_the_store_holds_several(ending: Ending) -> None:
    goal_id = ending.view.goal_id
    several = replace(ending, several=True)
    assert f"labmates champion diff --goal-id {goal_id}" in "\n".join(summary_lines(several))
    assert summary_document(several)["next"][0] == [
        "labmates",
        "champion",
        "diff",
        "--goal-id",
        goal_id,
    ]
    assert summary_document(ending)["next"][0] == ["labmates", "champion", "diff"]


def test_a_stop_is_said_first_and_what_remains_is_named(ending: Ending) -> None:
    stopped = replace(
        ending,
        stopped="you",
        live=("executor-1",),
        claims={"executor-1": "todo_0003"},
        published=None,
    )
    lines = summary_lines(stopped)
    assert lines[0].startswith("stopped by you at 0:")
    assert "attempts are kept." in lines[0]
    assert "Go on: labmates demo --execute --headless --resume" in "\n".join(lines)
    left = next(line for line in lines if line.startswith("still running: executor-1"))
    assert "todo_0003 by executor-1" in left


def test_an_escalated_goal_names_what_is_missing(ending: Ending) -> None:
    from contracts.words import Phase

    view = replace(ending.view, phase=Phase.ESCALATE, target=20.0, target_met=False)
    first = summary_lines(replace(ending, view=view))[0]
    assert first.startswith("escalate: 14.38x of 20.00x after ")
    assert first.endswith("; 5.62x are missing.")
    low = replace(ending.view, phase=Phase.ESCALATE, target=14.2, target_met=False)
    assert "does not reach it." in summary_lines(replace(ending, view=low))[0]
    nothing = replace(view, best=None)
    assert "all of 20.00x is missing." in summary_lines(replace(ending, view=nothing))[0]


def test_each_event_is_at_most_one_inert_line(ending: Ending) -> None:
    lines = [event_line(ending.state, event) for event in ending.state.events.values()]
    said = [line for line in lines if line]
    assert any("promoted hyp_" in line for line in said)
    assert [line for line in said if "\n" in line or not line.isascii()] == []
