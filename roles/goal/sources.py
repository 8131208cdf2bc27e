"""Where hypotheses come from: the queue, `hypotheses.jsonl` at the approved base.

One JSON object a line. The order of execution is by `priority` (1 first); hypotheses with a
confidence under 0.7 come after all others; ties keep the order of lines. What is not feasible is
skipped and stays in the file for audit. The file is read from the base commit, never from the
work tree, so nobody can slip in a line after the approval.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any, NoReturn

from contracts.contract import ResearchContract
from contracts.errors import UsageError
from contracts.records import Hypothesis
from roles.drivers.base import DRIVERS
from roles.workspace.git import Git

CONFIDENT = 0.7
TITLE_MAX = 48
_CHANGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CORE = ("hypothesis", "rationale", "confidence", "expected_delta", "priority", "source")


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """One line of the queue.

    Attributes:
        line: Its number in the file, from 1.
        priority: 1 is first.
        confidence: 0 to 1.
        driver: As the line says, else the contract's.
        change: Name of the folder of the prepared change, or "".
    """

    line: int
    hypothesis: str
    rationale: str
    confidence: float
    expected_delta: str
    priority: int
    source: str
    driver: str
    title: str
    mechanism_family: str
    feasible: bool = True
    blocker: str | None = None
    codebase_mapping: str = ""
    change: str = ""


_KEYS = {field.name for field in fields(QueueEntry)} - {"line"}


def changes_folder(queue: str) -> str:
    """Give the folder of prepared changes: `changes` beside the queue file."""
    return str(PurePosixPath(queue).parent / "changes")


def read_queue(git: Git, contract: ResearchContract) -> tuple[QueueEntry, ...]:
    """Read the contract's queue from its base commit, in the order of lines.

    Raises:
        UsageError: A line does not validate.
        GitError: The base commit has no such file.
    """
    strategy = contract.strategy
    raw = git.show(contract.base_commit, strategy.queue)
    return parse_queue(raw, file=strategy.queue, driver=strategy.driver)


def parse_queue(raw: bytes | str, *, file: str, driver: str) -> tuple[QueueEntry, ...]:
    """Read a queue strictly; blank lines are passed over.

    Args:
        raw: The file's content.
        file: Its name, for messages.
        driver: Of lines that name none.

    Raises:
        UsageError: Naming the line and what is wrong with it.
    """
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        _refuse(file, number, "is not UTF-8")
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found.append(_entry(_object(line, file, number), file, number, driver))
    return tuple(found)


def order(entries: Sequence[QueueEntry]) -> list[QueueEntry]:
    """Give the feasible entries in order of execution."""
    feasible = [entry for entry in entries if entry.feasible]
    return sorted(feasible, key=lambda e: (e.confidence < CONFIDENT, e.priority, e.line))


def next_entry(entries: Sequence[QueueEntry], cursor: str) -> tuple[QueueEntry, str] | None:
    """Give the entry at the cursor and the cursor after it; None at the end of the queue.

    Args:
        entries: All entries, in any order.
        cursor: How many entries were taken, as text; "" before the first.

    Raises:
        ValueError: The cursor is no such number.
    """
    taken = int(cursor or "0")
    if taken < 0:
        msg = f"a cursor cannot be {cursor}"
        raise ValueError(msg)
    ordered = order(entries)
    return (ordered[taken], str(taken + 1)) if taken < len(ordered) else None


def to_hypothesis(
    entry: QueueEntry, *, queue: str, rank: float, rank_reason: str = ""
) -> Hypothesis:
    """Make the record of an entry.

    Args:
        entry: A feasible one.
        queue: The queue's path in the repository.
        rank: Where it stands in the frontier; smaller is earlier.
        rank_reason: Why.
    """
    return Hypothesis(
        title=entry.title,
        hypothesis=entry.hypothesis,
        mechanism_family=entry.mechanism_family,
        source=entry.source,
        source_refs=(f"{queue}:{entry.line}",),
        no_grounding_reason="from the prepared queue, which names no public reference",
        rationale=entry.rationale,
        expected_delta=entry.expected_delta,
        confidence=entry.confidence,
        frontier_rank=rank,
        rank_reason=rank_reason,
        driver=entry.driver,
        change_ref=entry.change or None,
        queue_line=entry.line,
    )


def _object(line: str, file: str, number: int) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                _refuse(file, number, f"has the key {key!r} twice")
        return dict(pairs)

    def constant(text: str) -> NoReturn:
        _refuse(file, number, f"holds {text}, which is no JSON number")

    try:
        found = json.loads(line, object_pairs_hook=once, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        _refuse(file, number, f"is no JSON: {error}")
    if not isinstance(found, dict):
        _refuse(file, number, "is no JSON object")
    return found


def _entry(found: dict[str, Any], file: str, number: int, driver: str) -> QueueEntry:
    if unknown := sorted(set(found) - _KEYS):
        _refuse(file, number, f"has the unknown key {unknown[0]!r}")
    if missing := [key for key in _CORE if key not in found]:
        _refuse(file, number, f"has no {missing[0]}")
    read = _Fields(found, file, number)
    confidence = found["confidence"]
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        read.refuse("confidence", "a number from 0 to 1")
    if not 0 <= confidence <= 1:
        read.refuse("confidence", "a number from 0 to 1")
    priority = found["priority"]
    if isinstance(priority, bool) or not isinstance(priority, int):
        read.refuse("priority", "a whole number")
    feasible = found.get("feasible", True)
    if not isinstance(feasible, bool):
        read.refuse("feasible", "true or false")
    blocker = found.get("blocker")
    if blocker is not None and not isinstance(blocker, str):
        read.refuse("blocker", "text or null")
    if not feasible and not (blocker or "").strip():
        _refuse(file, number, "is not feasible and names no blocker")
    hypothesis = read.text("hypothesis", limit=8000, blank=False)
    entry = QueueEntry(
        line=number,
        hypothesis=hypothesis,
        rationale=read.text("rationale"),
        confidence=float(confidence),
        expected_delta=read.text("expected_delta"),
        priority=priority,
        source=read.text("source", limit=60, blank=False),
        driver=read.text("driver", default=driver, blank=False),
        title=read.text("title", default=short_title(hypothesis), limit=TITLE_MAX, blank=False),
        mechanism_family=read.text("mechanism_family", default="unnamed", limit=60, blank=False),
        feasible=feasible,
        blocker=blocker,
        codebase_mapping=read.text("codebase_mapping"),
        change=read.text("change"),
    )
    _check_change(entry, read)
    return entry


def _check_change(entry: QueueEntry, read: "_Fields") -> None:
    if entry.driver not in DRIVERS:
        read.refuse("driver", f"one of {', '.join(sorted(DRIVERS))}")
    if entry.change and not _CHANGE.fullmatch(entry.change):
        read.refuse("change", "the name of a folder, without slashes")
    if entry.feasible and not entry.change and entry.driver in {"files", "patch"}:
        _refuse(
            read.file, entry.line, f"names no change, and the driver {entry.driver!r} needs one"
        )


@dataclass(frozen=True)
class _Fields:
    """The fields of one line, with where they stand."""

    found: dict[str, Any]
    file: str
    number: int

    def text(self, key: str, *, default: str = "", limit: int = 4000, blank: bool = True) -> str:
        value = self.found.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, "text")
        if not blank and not value.strip():
            self.refuse(key, "text that is not blank")
        if len(value) > limit:
            self.refuse(key, f"text of at most {limit} characters (these are {len(value)})")
        return value

    def refuse(self, key: str, expected: str) -> NoReturn:
        shown = json.dumps(self.found.get(key), ensure_ascii=False)[:60]
        _refuse(self.file, self.number, f"{key} must be {expected}, not {shown}")


def short_title(hypothesis: str) -> str:
    """Shorten a hypothesis to a title, at a word's end."""
    line = " ".join(hypothesis.split())
    if len(line) <= TITLE_MAX:
        return line
    head = line[: TITLE_MAX + 1].rpartition(" ")[0]
    return head or line[:TITLE_MAX]


def _refuse(file: str, number: int, what: str) -> NoReturn:
    message = f"{file} line {number} {what}"
    raise UsageError(message, facts={"file": file, "line": str(number)})
