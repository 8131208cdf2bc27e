"""Text for people: inert data, durations, columns, budgets."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.text import (
    LABEL_WIDTH,
    cut,
    duration,
    ends,
    fact,
    facts,
    floor,
    gap,
    inert,
    interval,
    plain,
    score,
    table,
    with_interval,
    wrapped,
)
from quota.budget import exhausted, line
from quota.cold import to_json
from quota.document import iso
from quota.request import parse


@given(st.text(st.characters(codec=None)))
def test_inert_text_has_only_what_prints_and_stays_on_one_line(text: str) -> None:
    assert inert(text).isprintable()


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


def test_controls_are_shown_as_escapes() -> None:
    assert inert("\x1b]0;x\x07\x9b\u202e\n\U000e0001") == "\\x1b]0;x\\x07\\x9b\\u202e\\n\\U000e0001"
    assert inert(b"\xff".decode("utf-8", "surrogateescape")) == "\\udcff"
    assert inert("a\n\tb\r", lines=True) == "a\n\tb\\r"
    assert inert(None) == "none"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (33.9, "33s"),
        (60, "1m"),
        (333, "5m33s"),
        (982, "16m22s"),
        (8 * 3600, "8h"),
        (6 * 3600 + 130, "6h02m"),
        (47 * 3600, "47h"),
        (76 * 3600, "3d04h"),
        (-5, "0s"),
    ],
)
def test_spans_read_as_on_the_terminal_page(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (float("nan"), "none"),
        (float("inf"), "none"),
        (0.0, "0.00"),
        (6.743, "6.74"),
        (-0.5, "-0.50"),
        (0.1, "0.10"),
        (0.09996, "0.100"),
        (0.0012345, "0.00123"),
        (-0.001, "-0.00100"),
        (1.5e-9, "1.50e-09"),
        (1234567.891, "1234567.89"),
        (1e300, "1.00e+300"),
    ],
)
def test_a_score_has_two_decimals_or_three_digits_that_say_something(
    value: float | None, shown: str
) -> None:
    assert score(value) == shown


@given(st.floats(-1e300, 1e300) | st.sampled_from((None, math.nan, math.inf, -math.inf)))
def test_no_number_is_ever_shown_as_nan_or_as_zero(value: float | None) -> None:
    text = score(value, "s")
    assert "nan" not in text
    assert "inf" not in text
    if value is not None and math.isfinite(value):
        shown = float(text.removesuffix("s"))
        assert shown == pytest.approx(value, rel=0.05, abs=5e-324)


def test_an_interval_has_the_digits_of_its_ends() -> None:
    assert interval(6.37, 7.35) == "[6.37, 7.35]"
    assert interval(0.00098, 0.00102) == "[0.000980, 0.00102]"
    assert with_interval(0.001, 0.00098, 0.00102, "s") == "0.00100s [0.000980, 0.00102]"
    assert with_interval(None, 1.0, 2.0) == "none"
    assert with_interval(6.7, None, None, "x") == "6.70x"


def test_what_is_asked_for_keeps_the_digits_it_was_written_with() -> None:
    assert [floor(1 + gain) for gain in (0.05, 0.0, 0.1, 0.001)] == [
        "1.05",
        "1.00",
        "1.10",
        "1.001",
    ]


def test_the_values_of_checks_read_as_in_the_records() -> None:
    given_values = (None, True, 0.00098765, 12, ">= 1.05")
    assert [plain(value) for value in given_values] == [
        "none",
        "true",
        "0.0009877",
        "12",
        ">= 1.05",
    ]


@given(st.text("ab ", max_size=200), st.integers(5, 40))
def test_wrapping_loses_no_word_and_keeps_the_width(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(len(each) <= width or " " not in each for each in lines)


def test_facts_stand_in_two_columns_and_wrap_below_themselves() -> None:
    assert fact("because", "one two", width=15) == ["because    one", "           two"]
    assert facts([("a", "b\nc")]) == ["a          b", "           c"]
    wide = facts({"a_very_long_label": "x", "b": "y"})
    assert wide == ["a_very_long_label  x", "b                  y"]
    assert LABEL_WIDTH == 11


def test_a_table_cuts_its_last_column_and_never_wraps() -> None:
    rows = table(("A", "B"), [("1", "x" * 30), ("10", "y")], width=20, right=(0,))
    assert rows == [" A  B", " 1  " + "x" * 13 + "...", "10  y"]
    assert cut("abcdef", 5) == "ab..."
    assert ends("a", "b", width=5) == "a   b"


BUDGET = {
    "attempts": {"used": 13, "reserved": 0, "limit": 16},
    "parallel": {"used": 1, "limit": 2},
    "cost_usd": {"used": 5.97, "limit": 20.0},
    "seconds_left": 21720,
}


def test_a_budget_is_one_line() -> None:
    shown = "attempts 13 of 16, parallel 1 of 2, 5.97 of 20.00 USD, 6h02m left"
    assert line(BUDGET) == shown
    free = BUDGET | {"cost_usd": {"used": 0.0, "limit": None}, "seconds_left": None}
    assert line(free, parallel=False) == "attempts 13 of 16, 0.00 USD"


def test_what_is_used_up_is_said_for_each_budget() -> None:
    assert exhausted(BUDGET) == []
    used = {"used": 16, "reserved": 0, "limit": 16}
    assert exhausted(BUDGET | {"attempts": used}) == ["attempts 16 of 16 are used"]
    reserved = {"used": 15, "reserved": 1, "limit": 16}
    found = exhausted(BUDGET | {"attempts": reserved})
    assert found == ["attempts 16 of 16 are used or reserved"]
    spent = BUDGET | {"cost_usd": {"used": 20.5, "limit": 20.0}, "seconds_left": 0}
    assert exhausted(spent) == ["20.50 of 20.00 USD are spent", "the deadline is over"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
)


@given(JSON)
def test_the_cold_paths_json_reads_back_as_what_it_was(value: object) -> None:
    assert json.loads(to_json(value)) == value
    assert to_json(value).isascii()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}, object()])
def test_the_cold_path_writes_no_json_that_is_none(value: object) -> None:
    with pytest.raises(TypeError):
        to_json(value)


def test_times_of_the_store_are_utc() -> None:
    assert iso(1796065420123) == "2026-11-30T19:03:40.123Z"
    assert iso(0) is None


def test_the_plain_command_line_is_read_without_click() -> None:
    found = parse("should-run", ["--agent-id=executor-1", "--goal-id", "knn", "--json"])
    assert found is not None
    assert (found.agent_id, found.goal_id, found.as_json) == ("executor-1", "knn", True)
    assert found.named_goal
    claimed = parse("claim", ["--agent-id", "a", "--todo-id", "todo_0001"])
    assert claimed is not None
    assert claimed.todo_id == "todo_0001"
    assert claimed.operation


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--agent-id", "a", "--wait", "3"],
        ["--agent-id"],
        ["--agent-id="],
        ["--agent-id", "--json"],
        ["--agent-id", "a", "--role", "boss"],
        ["--agent-id", "a", "--todo-id", "todo_1"],
        ["--agent-id", "a", "b"],
        [],
    ],
)
def test_whatever_is_not_plain_is_left_to_click(words: list[str]) -> None:
    assert parse("should-run", words) is None


@pytest.mark.parametrize(
    ("best", "target", "more", "says"),
    [
        (2.0, 5.0, {}, "3.00x of 5.00x"),
        (5.0, 2.0, {"down": True}, "3.00x of 2.00x"),
        (5.5, 5.0, {}, "the worse end of the interval has not reached 5.00x"),
        (1.5, 2.0, {"down": True}, "the worse end of the interval has not reached 2.00x"),
        (None, 5.0, {}, "all of 5.00x; nothing was accepted"),
        (
            None,
            5.0,
            {"improvements": (0, 2)},
            "all of 5.00x; nothing was accepted; 2 of 2 improvements",
        ),
        (6.0, 5.0, {"met": True, "improvements": (1, 2)}, "1 of 2 improvements"),
        (6.0, 5.0, {"met": True}, "nothing; the target is met"),
        (6.0, None, {"met": True}, "no target was set"),
    ],
)
def test_the_gap_says_what_the_target_lacks(
    best: float | None, target: float | None, more: dict[str, Any], says: str
) -> None:
    assert gap(best, target, **{"down": False, "met": False, "unit": "x", **more}) == says
