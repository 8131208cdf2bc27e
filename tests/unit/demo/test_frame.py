"""The live view: the mock-ups' bars, and a frame that fits whatever the terminal is."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from contracts.records import Spread
from contracts.replay_state import GoalState
from contracts.words import Direction, Phase, Role
from demo.frame import MAX_LINES, bar, frame
from projection.rows import AttemptRow
from projection.view import BudgetView, LaneRow, View

NOW = datetime(2026, 1, 1, 0, 1, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("dev", "held", "drawn"),
    [
        (2.44, None, "        |====o    :       "),
        (2.44, 2.39, "        |====*    :       "),
        (0.31, None, " o------|         :       "),
        (6.05, 5.72, "        |========*o       "),
        (7.20, 6.81, "        |=========*o      "),
        (7.17, None, "        |==========o      "),
        (14.82, 15.31, "        |==============*  "),
        (None, None, "        |         :       "),
        (0.001, None, "o-------|         :       "),
        (1e9, None, "        |================o"),
    ],
)
def test_a_bar_is_that_of_the_mock_up(dev: float | None, held: float | None, drawn: str) -> None:
    assert bar(dev, held, 7.0) == drawn


def spread(value: float | None) -> Spread | None:
    if value is None:
        return None
    return Spread(value=value, low=value * 0.95, high=value * 1.05, level=0.95, n=12)


def row(number: int, title: str, dev: float | None, held: float | None, result: str) -> AttemptRow:
    return AttemptRow(
        number=number,
        hypothesis_id=f"hyp_{number:04d}",
        todo_id=f"todo_{number:04d}",
        title=title,
        family="",
        dev=spread(dev),
        held=spread(held),
        against=spread(dev),
        result=result,
        reason="",
        state="",
        verdict="",
        commit="",
        base_commit="",
        branch="",
        boundary_clean=True,
        started_at=NOW,
        replay_of=None,
        cost_usd=0.0,
    )


def lane(role: Role, state: str, doing: str, todo: str = "") -> LaneRow:
    return LaneRow(f"{role}-1", (role,), todo, "", state, NOW, doing, "", "")


VIEW = View(
    goal_id="knn-1",
    revision=68,
    phase=Phase.ITERATE,
    objective="",
    metric="speedup",
    unit="x",
    direction=Direction.MAXIMIZE,
    target=7.0,
    target_met=False,
    min_gain=0.05,
    paused=False,
    pause_note="",
    started_at=datetime(2026, 1, 1, 0, 0, 35, tzinfo=UTC),
    last_at=NOW,
    live=5,
    counts={},
    best=None,
    decided_on="held-out",
    champion_commit="",
    champion_hypothesis_id=None,
    attempts=(
        row(1, "product", 2.44, 2.39, "kept"),
        row(2, "loop", 0.31, None, "refuted, slower"),
        row(3, "projection", None, None, "refuted, wrong"),
        row(4, "block minima", None, None, "waits, dev"),
        row(5, "autotune", None, None, "running"),
    ),
    lanes=(
        lane(Role.EXECUTOR, "working", "attempt 5, hyp_0005: files", "todo_0005"),
        lane(Role.EVALUATOR, "working", "hyp_0004: dev, pair 5 of 12", "todo_0004"),
        lane(Role.CURATOR, "waiting", "frontier_empty"),
    ),
    budget=BudgetView(5, 0, 12, 1, 1, 0.0, 0.0, 1, 24),
    gates=(),
    improvements=1,
)


def plain(view: View = VIEW, *, width: int = 80, height: int = MAX_LINES) -> list[str]:
    state, events = GoalState(goal_id="knn-1"), ["0:48  one", "0:49  two"]
    lines = frame(state, view, NOW, events, preset="knn", width=width, height=height)
    return [line.plain for line in lines]


def test_a_frame_reads_as_the_mock_up_does() -> None:
    assert plain() == [
        "knn-1   iterate   0:49   rev 68                        labmates demo, preset knn",
        "best held-out  none yet          target 7.00x          attempts 5 of 12",
        "",
        " #  change             dev  0.25    1x    3x  7x         held  result",
        " 1  product           2.44          |====*    :          2.39  kept",
        " 2  loop              0.31   o------|         :                refuted, slower",
        " 3  projection        none          |         :                refuted, wrong",
        " 4  block minima                    |         :                dev 5 of 12",
        " 5  autotune                        |         :                running, files",
        "",
        "curator-1    waiting    a signature to join, or a gate",
        "executor-1   working    attempt 5, hyp_0005: files",
        "evaluator-1  working    hyp_0004: dev, pair 5 of 12",
        "",
        "0:48  one",
        "0:49  two",
        "Ctrl-C ends the lanes after what runs.   Elsewhere: labmates status",
    ]


@pytest.mark.parametrize("width", [40, 80, 100, 120])
@pytest.mark.parametrize("height", [8, 16, 24])
def test_a_frame_never_leaves_the_terminal_and_is_ascii(width: int, height: int) -> None:
    odd = "x\x1b[2J\n\u202e" * 4
    many = tuple(row(n, odd, 2.0, None, odd) for n in range(1, 30))
    lines = plain(replace(VIEW, attempts=many), width=width, height=height)
    assert len(lines) <= min(height, MAX_LINES)
    assert [line for line in lines if len(line) > width or not line.isascii()] == []
    assert not any(char in line for line in lines for char in "\x1b\n")


def test_the_oldest_attempts_give_way_and_the_last_one_is_always_there() -> None:
    many = tuple(row(n, f"change {n}", 2.0, None, "no gain") for n in range(1, 30))
    lines = plain(replace(VIEW, attempts=many))
    assert len(lines) == MAX_LINES
    assert lines[4] == " .. attempts 1 to 18: labmates attempt list"
    assert [line[:2] for line in lines[5:16]] == [f"{n:>2}" for n in range(19, 30)]


def test_the_wide_frame_adds_what_decided() -> None:
    lines = plain(width=120)
    assert lines[1].endswith("needed to beat: 1.05")
    assert lines[4].endswith("kept                 2.44 [2.32, 2.56]")


def test_a_repeated_attempt_says_so_within_its_column() -> None:
    rows = [row(n, title, 2.0, None, "no gain") for n, title in ((1, "buffer"), (2, "buffer"))]
    rows += [row(n, "block minima", 2.0, None, "no gain") for n in (3, 4)]
    names = ("hyp_0001", "hyp_0001", "hyp_0002", "hyp_0002")
    attempts = tuple(
        replace(each, hypothesis_id=name) for each, name in zip(rows, names, strict=True)
    )
    lines = plain(replace(VIEW, attempts=attempts))[4:8]
    assert [line[4:21].rstrip() for line in lines] == [
        "buffer",
        "buffer, again",
        "block minima",
        "block minima (2)",
    ]


def test_a_small_score_keeps_its_digits_in_the_frame() -> None:
    first = row(1, "a title that is long", 0.00123, 0.00456, "kept")
    lines = plain(replace(VIEW, unit="s", attempts=(first,)))
    assert " a title that...0.00123  " in lines[4].replace(" 1 ", " ")
    assert "0.00456  kept" in lines[4]
    assert all(len(line) <= 80 for line in lines)


def test_the_wide_frame_gives_the_reason_of_a_rejection() -> None:
    first = replace(row(1, "product", 2.44, 2.39, "rejected"), reason="too complex")
    lines = plain(replace(VIEW, attempts=(first,)), width=120)
    assert lines[4].endswith("rejected             too complex")
