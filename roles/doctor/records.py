"""A goal's records, the derived state beside them, and its leases."""

from collections.abc import Iterator

from contracts.store.reader import Reader
from contracts.store.rebuild import Diagnosis, diagnose, rebuild
from contracts.store.server import lost_entries
from contracts.words import Stream
from roles.doctor.check import Check, alarm, found, ok, some

PATIENCE_MS = 60_000
"""A lease that ended longer ago than this is worth a word."""


def record_checks(reader: Reader, *, fix: bool) -> Iterator[Check]:
    """Check streams, events, derived state and leases of a goal; `fix` rebuilds derived state."""
    goal_id, diagnosis = reader.goal_id, diagnose(reader)
    yield _streams(reader, diagnosis)
    yield _events(diagnosis)
    if not diagnosis.violations:
        yield _derived(reader, diagnosis, fix=fix)
    yield _leases(reader, goal_id)


def _streams(reader: Reader, diagnosis: Diagnosis) -> Check:
    goal_id, name = reader.goal_id, "streams"
    heads, entries = diagnosis.snapshot.heads or {}, diagnosis.snapshot.entries
    verify = ["labmates", "verify", "--goal-id", goal_id]
    gone = [str(each) for each in Stream if heads.get(each) and not entries.get(each)]
    if gone:
        return alarm(goal_id, name, f"gone: {', '.join(gone)}", verify)
    lost = lost_entries(reader)
    first = {
        str(stream): fields[0][1].get("seq", "none")
        for stream, fields in entries.items()
        if fields and fields[0][1].get("seq") != "1"
    }
    if lost:
        says = ", ".join(f"{stream} lost {count}" for stream, count in lost.items())
        return alarm(goal_id, name, f"entries were trimmed or deleted: {says}", verify)
    if first:
        says = ", ".join(f"{stream} begins at {seq}" for stream, seq in first.items())
        return alarm(goal_id, name, f"their beginning is missing: {says}", verify)
    count = sum(map(len, entries.values()))
    return ok(goal_id, name, f"{count} events, none trimmed")


def _events(diagnosis: Diagnosis) -> Check:
    goal_id, name = diagnosis.snapshot.goal_id, "records"
    violations = diagnosis.violations
    if not violations:
        return ok(goal_id, name, "every event keeps the rules")
    first = violations[0]
    where = f"revision {first.revision}" + (f" of {first.stream}" if first.stream else "")
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    verify = ["labmates", "verify", "--goal-id", goal_id]
    return alarm(goal_id, name, f"{where}: {first.what}{more}", verify)


def _derived(reader: Reader, diagnosis: Diagnosis, *, fix: bool) -> Check:
    goal_id, name = reader.goal_id, "derived state"
    if not diagnosis.whole:
        return ok(goal_id, name, "not compared: the goal was written all the time")
    if not diagnosis.findings:
        return ok(goal_id, name, "follows from the events")
    findings = rebuild(reader) if fix else diagnosis.findings
    says = some(f"{each.name} is {each.actual}, not {each.expected}" for each in findings)
    mend = ["labmates", "doctor", "--fix", "--goal-id", goal_id]
    return found(goal_id, name, says or "another process mended it", mend, mended=fix)


def _leases(reader: Reader, goal_id: str) -> Check:
    name = "leases"
    try:
        leases, now = reader.leases(), reader.now_ms()
    except ValueError:
        return ok(goal_id, name, "not readable; see derived state")
    ended = sorted(todo for todo, end in leases.items() if end < now - PATIENCE_MS)
    if ended:
        says = f"{some(ended)} ended long ago; the next should-run gives it back"
        return ok(goal_id, name, says)
    return ok(goal_id, name, f"{len(leases)} held")
