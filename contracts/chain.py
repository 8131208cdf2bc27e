"""The digest chain of a goal's streams, checked entry by entry.

Pure: entries and heads come from a reader. A chain without a key guards against accidents and
edits; a writer who recomputes it is caught by `contracts.replay`, and by a head kept elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.canonical import chain_digest
from contracts.events import AnyEvent, parse_entry
from contracts.replay_state import Violation
from contracts.words import Stream

Entry = tuple[str, Mapping[str, str]]
"""An entry's id and its fields, in stored order."""


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What the chains hold.

    Attributes:
        events: Every entry that parses, in order of revision (first one where two claim the same).
        violations: Every broken, missing, foreign or repeated event, in order of revision.
        heads: The last position and digest of each stream, computed (`<seq> <digest>`).
    """

    events: list[AnyEvent]
    violations: list[Violation]
    heads: dict[str, str]


def _number(text: str | None) -> int:
    return int(text) if text and len(text) < 16 and text.isascii() and text.isdigit() else 0


@dataclass(slots=True)
class _Link:
    """Where a stream's chain stands: its length and the digests that the next entry may chain on.

    An entry that was altered must not drag down the one behind it, so both the digest that it
    carries and the one that its content gives may be chained on.
    """

    seq: int
    digests: tuple[str, str]
    longest: int

    def accept(self, fields: Mapping[str, str]) -> str | None:
        """Move on by one entry, and say what is wrong with it; a foreign one does not move on."""
        content = [(name, value) for name, value in fields.items() if name != "digest"]
        digest = fields.get("digest", "")
        due, stands = self.seq + 1, _number(fields.get("seq"))
        problem = None
        if stands != due:
            problem = f"position {fields.get('seq', 'none')} where {due} is due"
            mended = [(name, str(due) if name == "seq" else value) for name, value in content]
            if digest and digest in self._digests(mended):
                stands = due
            elif digest and due < stands <= self.longest:
                gap = f"{due}" if stands == due + 1 else f"{due} to {stands - 1}"
                problem = f"position {gap} of the stream is missing right before it"
            else:
                return f"it did not come through the library: {problem}"
        elif digest not in self._digests(content):
            problem = "its digest does not fit its content and the event before it"
        self.seq = stands
        self.digests = digest, self._digests(content)[0]
        return problem

    def _digests(self, content: Sequence[tuple[str, str]]) -> tuple[str, str]:
        stored, computed = self.digests
        return chain_digest(stored, content), chain_digest(computed, content)


def _check_stream(
    goal_id: str, stream: Stream, entries: Sequence[Entry], head: str | None
) -> tuple[list[AnyEvent], list[Violation], str]:
    events: list[AnyEvent] = []
    found: list[Violation] = []
    start = f"{goal_id}:{stream}"
    length = max(len(entries), _number((head or "").split(" ", maxsplit=1)[0]))
    link = _Link(0, (start, start), length)
    for entry_id, fields in entries:
        revision, kind = _number(fields.get("rev")), fields.get("type", "")
        problem = link.accept(fields)
        try:
            events.append(parse_entry(goal_id, stream, entry_id, fields))
        except (ValueError, KeyError, OverflowError, RecursionError) as error:
            problem = problem or f"it is no event: {str(error).splitlines()[0]}"
        if problem:
            found.append(Violation(revision, stream, entry_id, kind, problem))
    own = f"{link.seq} {link.digests[0]}" if link.seq else ""
    if head is not None and head != own:
        last_id, last = entries[-1] if entries else ("", {})
        what = f"the stream ends at {own or 'none'}, its stored head is {head or 'none'}"
        where = _number(last.get("rev")), last_id, last.get("type", "")
        found.append(Violation(where[0], stream, where[1], where[2], what))
    return events, found, own


def verify_chains(
    goal_id: str,
    entries: Mapping[Stream, Sequence[Entry]],
    heads: Mapping[str, str] | None,
    revision: int,
) -> ChainReport:
    """Check all five chains, and that together they hold every revision exactly once.

    Args:
        goal_id: The goal; the first digest of a stream chains on it.
        entries: The entries of each stream, in stored order.
        heads: The stored heads, or None to leave them out (a store that is written meanwhile).
        revision: The goal's revision as the store has it.
    """
    by_revision: dict[int, AnyEvent] = {}
    violations: list[Violation] = []
    own_heads: dict[str, str] = {}
    present: set[int] = set()
    for stream in Stream:
        of_stream = entries.get(stream, ())
        head = None if heads is None else heads.get(stream, "")
        events, found, own = _check_stream(goal_id, stream, of_stream, head)
        violations.extend(found)
        if own:
            own_heads[stream] = own
        present.update(_number(fields.get("rev")) for _, fields in of_stream)
        for event in events:
            first = by_revision.setdefault(event.revision, event)
            if first is not event:
                what = f"revision {event.revision} is that of {first.stream} {first.entry_id} too"
                violations.append(
                    Violation(event.revision, stream, event.entry_id, event.type, what)
                )
    violations.extend(
        Violation(missing, "", "", "", f"the event of revision {missing} is missing")
        for missing in range(1, revision + 1)
        if missing not in present
    )
    violations.extend(
        Violation(event.revision, event.stream, event.entry_id, event.type, "beyond the goal's")
        for event in by_revision.values()
        if event.revision > revision
    )
    ordered = [by_revision[number] for number in sorted(by_revision)]
    violations.sort(key=lambda each: (each.revision, each.stream, each.entry_id))
    return ChainReport(ordered, violations, own_heads)
