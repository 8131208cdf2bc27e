"""The queue: strict lines, the order of execution, the cursor."""

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.canonical import text_digest
from contracts.errors import UsageError
from demo.preset import load_preset
from roles.goal.sources import (
    QueueEntry,
    changes_folder,
    next_entry,
    order,
    parse_queue,
    to_hypothesis,
)

CORE: dict[str, Any] = {
    "hypothesis": "Sort less.",
    "rationale": "Sorting is slow.",
    "confidence": 0.9,
    "expected_delta": "+10%",
    "priority": 1,
    "source": "oracle",
    "change": "01-sort",
}


def line(**changes: Any) -> str:
    return json.dumps({key: value for key, value in (CORE | changes).items() if value != "drop"})


def parse(*lines: str) -> tuple[QueueEntry, ...]:
    return parse_queue("\n".join(lines), file="hypotheses.jsonl", driver="files")


def fault(*lines: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(*lines)
    assert caught.value.facts["file"] == "hypotheses.jsonl"
    return caught.value.message


def test_a_line_with_the_core_fields_gets_the_defaults() -> None:
    (entry,) = parse(line())
    assert (entry.line, entry.driver, entry.feasible, entry.blocker) == (1, "files", True, None)
    assert entry.title == "Sort less."
    assert entry.codebase_mapping == ""


def test_a_long_hypothesis_gets_a_title_cut_at_a_word() -> None:
    (entry,) = parse(line(hypothesis="word " * 30))
    assert entry.title == " ".join(["word"] * 9)
    (entry,) = parse(line(hypothesis="x" * 100))
    assert len(entry.title) == 48


def test_blank_lines_are_passed_over_and_lines_keep_their_numbers() -> None:
    assert [entry.line for entry in parse("", line(), "  ", line(), "")] == [2, 4]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "is no JSON"),
        ("[1]", "is no JSON object"),
        (line(hypothesis="drop"), "has no hypothesis"),
        (line(source="drop"), "has no source"),
        (line(hypothesis=" "), "hypothesis must be text that is not blank"),
        (line(rationale=3), "rationale must be text, not 3"),
        (line(confidence="0.9"), "confidence must be a number from 0 to 1"),
        (line(confidence=True), "confidence must be a number from 0 to 1"),
        (line(confidence=1.1), "confidence must be a number from 0 to 1"),
        (line(confidence=10**400), "confidence must be a number from 0 to 1"),
        (line().replace("0.9", "NaN"), "holds NaN"),
        (line(priority=1.0), "priority must be a whole number"),
        (line(priority=True), "priority must be a whole number"),
        (line(feasible="yes"), "feasible must be true or false"),
        (line(feasible=False), "is not feasible and names no blocker"),
        (line(feasible=False, blocker="  "), "is not feasible and names no blocker"),
        (line(blocker=3), "blocker must be text or null"),
        (line(title="x" * 49), "title must be text of at most 48 characters"),
        (line(driver="magic"), "driver must be one of command, files, patch"),
        (line(change="../up"), "change must be the name of a folder"),
        (line(change="drop"), "names no change"),
        (line(extra=1), "unknown key 'extra'"),
        (line()[:-1] + ', "priority": 2}', "has the key 'priority' twice"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(bad: str, why: str) -> None:
    message = fault(line(), bad)
    assert message.startswith("hypotheses.jsonl line 2 ")
    assert why in message


def test_a_line_that_is_not_utf8_is_named() -> None:
    with pytest.raises(UsageError, match="line 2 is not UTF-8"):
        parse_queue(line().encode() + b"\n\xff\n", file="hypotheses.jsonl", driver="files")


def test_the_command_driver_needs_no_change() -> None:
    (entry,) = parse(line(driver="command", change="drop"))
    assert entry.change == ""


def test_order_is_by_priority_with_low_confidence_last_and_ties_by_line() -> None:
    entries = parse(
        line(title="low first", priority=1, confidence=0.69),
        line(title="second a", priority=2),
        line(title="never", priority=0, feasible=False, blocker="no GPU"),
        line(title="second b", priority=2, confidence=0.7),
        line(title="first", priority=1),
        line(title="lower", priority=0, confidence=0.1),
        line(title="journal", priority=-3),
    )
    assert [entry.title for entry in order(entries)] == [
        "journal",
        "first",
        "second a",
        "second b",
        "lower",
        "low first",
    ]
    assert len(entries) == 7  # what is not feasible stays for audit


def test_the_cursor_walks_the_order_once() -> None:
    entries = parse(line(title="b", priority=2), line(title="a", priority=1))
    seen, cursor = [], ""
    while (found := next_entry(entries, cursor)) is not None:
        entry, cursor = found
        seen.append((entry.title, cursor))
    assert seen == [("a", "1"), ("b", "2")]
    with pytest.raises(ValueError, match="cursor"):
        next_entry(entries, "-1")


def test_an_entry_becomes_a_record_that_says_where_it_came_from() -> None:
    entries = parse(line(mechanism_family="sorting", driver="patch"))
    record = to_hypothesis(entries[0], queue="q/h.jsonl", rank=2.5, rank_reason="priority 1")
    assert record.source_refs == ("q/h.jsonl:1",)
    assert (record.change_ref, record.queue_line, record.driver) == ("01-sort", 1, "patch")
    assert record.no_grounding_reason
    assert record.frontier_rank == 2.5


def test_text_that_reads_the_same_has_one_digest() -> None:
    first, second, third = parse(
        line(hypothesis="Sort  the\tROWS \ufb01rst"),
        line(hypothesis="sort the rows first"),
        line(hypothesis="sort the columns first"),
    )
    assert text_digest(first.hypothesis) == text_digest(second.hypothesis)
    assert text_digest(first.hypothesis) != text_digest(third.hypothesis)


def test_changes_lie_beside_the_queue() -> None:
    assert changes_folder("hypotheses.jsonl") == "changes"
    assert changes_folder("research/h.jsonl") == "research/changes"


def test_the_preset_has_a_queue_that_reads() -> None:
    preset = load_preset("knn")
    raw = Path(preset.queue).read_bytes()
    entries = parse_queue(raw, file=preset.queue.name, driver="files")
    assert len(order(entries)) >= 10
    assert all((preset.changes / entry.change).is_dir() for entry in entries if entry.change)
