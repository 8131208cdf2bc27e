"""Attempts as text: the list, and one in full."""

from typing import Any

from contracts import records
from contracts.findings import finding_of
from contracts.replay_state import AttemptState, GoalState
from contracts.text import NONE, cut, inert, plain, score, with_interval
from projection.rows import AttemptRow, attempt_row
from projection.view import View


def spread_text(found: records.Spread | None, unit: str = "") -> str:
    """Give a number with its interval, or `none`."""
    return with_interval(found.value, found.low, found.high, unit) if found else NONE


def spread_json(found: records.Spread | None) -> dict[str, Any] | None:
    """Give a spread as documents write it."""
    return found.to_json_dict() if found else None


def row_json(row: AttemptRow) -> dict[str, Any]:
    """Give an attempt's row as documents write it."""
    return {
        "attempt": row.number,
        "hypothesis_id": row.hypothesis_id,
        "todo_id": row.todo_id,
        "title": row.title,
        "mechanism_family": row.family,
        "dev": spread_json(row.dev),
        "holdout": spread_json(row.held),
        "against_champion": spread_json(row.against),
        "result": row.result,
        "reason": row.reason,
        "verdict": row.verdict or None,
        "state": row.state,
        "commit": row.commit or None,
        "base_commit": row.base_commit,
        "branch": row.branch,
        "boundary_clean": row.boundary_clean,
        "started_at": row.started_at.isoformat(),
        "replay_of": row.replay_of,
        "cost_usd": row.cost_usd,
        "log": row.log or None,
    }


def table(view: View, *, width: int = 80) -> list[str]:
    """List all attempts; the last column is cut, nothing wraps."""
    wide = min(20, max((len(inert(row.title)) for row in view.attempts), default=0))
    wide = max(wide, len("change"))
    result = max((len(inert(row.result)) for row in view.attempts), default=0)
    lines = [f"{'#':>3}  {'change':<{wide}}  {'dev':>7}  {'held':>7}  {'result':<{result}}  reason"]
    for row in view.attempts:
        dev = score(row.dev.value if row.dev else None)
        held = score(row.held.value if row.held else None)
        lines.append(
            f"{row.number:>3}  {cut(inert(row.title), wide):<{wide}}  {dev:>7}  {held:>7}  "
            f"{inert(row.result):<{result}}  {inert(row.reason)}"
        )
    if not view.attempts:
        return ["No attempt was started yet."]
    return [cut(line.rstrip(), width) for line in lines]


def _checks(checks: tuple[records.Check, ...]) -> list[str]:
    if not checks:
        return []
    lines = [f"{'CHECK':<24}{'ACTUAL':<20}{'EXPECTED':<20}"]
    for check in checks:
        word = "pass" if check.passed else "fail"
        actual, expected = inert(plain(check.actual)), inert(plain(check.expected))
        lines.append(
            f"{cut(inert(check.name), 22):<24}{cut(actual, 18):<20}{cut(expected, 18):<20}{word}"
        )
    return [line.rstrip() for line in lines]


def detail(state: GoalState, attempt: AttemptState, *, unit: str) -> list[str]:
    """Show one attempt: answer, reason, numbers, checks, next command."""
    row = attempt_row(state, attempt)
    lines = [
        f"attempt {row.number}  {row.hypothesis_id}  {inert(row.title)}  {inert(row.result)}",
        "",
        f"reason     {inert(row.reason) or NONE}",
        f"idea       {row.todo_id}, family {inert(row.family)}",
        f"branch     {inert(row.branch)}",
        f"commit     {row.commit[:12] or NONE}, base {row.base_commit[:12]}",
        f"boundary   {_boundary(row)}",
        *_finding(state, attempt),
        *_ended(attempt),
        "",
        f"dev        {spread_text(row.dev, unit)}",
        f"against    {spread_text(row.against)}  (the champion of the time)",
        f"held-out   {spread_text(row.held, unit)}",
    ]
    if row.replay_of:
        lines.insert(5, f"replays    attempt {row.replay_of}, on a champion that had moved")
    if attempt.evidence and attempt.evidence.changed_files:
        made = attempt.evidence
        files = ", ".join(inert(name) for name in made.changed_files)
        lines.append(cut(f"change     {files} +{made.insertions} -{made.deletions}", 80))
    for head, found in (
        ("dev", attempt.evaluation.checks if attempt.evaluation else ()),
        ("held-out", attempt.holdout.checks if attempt.holdout else ()),
    ):
        if checks := _checks(found):
            lines += ["", f"checks of {head}", *checks]
    if row.commit:
        option = "--log" if row.log else "--diff"
        lines += ["", f"next       labmates attempt show {row.number} {option}"]
    return [cut(line, 80).rstrip() for line in lines]


def _ended(attempt: AttemptState) -> list[str]:
    """Say how the dev measurement's last process ended, and which log it wrote."""
    manifest = attempt.evaluation.measurement.manifest if attempt.evaluation else None
    if manifest is None:
        return []
    ends = [NONE if manifest.exit_code is None else str(manifest.exit_code)]
    if manifest.signal is not None:
        ends.append(f"signal {manifest.signal}")
    if manifest.ended_by not in {"exit", "signal"}:
        ends.append(f"ended by {inert(manifest.ended_by)}")
    lines = [f"exit_code  {', '.join(ends)}"]
    return [*lines, f"log        {inert(manifest.log_ref)}"] if manifest.log_ref else lines


def _finding(state: GoalState, attempt: AttemptState) -> list[str]:
    """Say what decision and peer reviews make of it, where this attempt is the one decided on."""
    item = state.items[attempt.todo_id]
    found = finding_of(state, item)
    if found is None or item.attempts[-1] != attempt.number:
        return []
    return [f"finding    {found.status}: {inert(found.why)}"]


def _boundary(row: AttemptRow) -> str:
    if row.boundary_clean is None:
        return NONE
    return "clean" if row.boundary_clean else "left, see the reason"
