"""What stays in the terminal when a run has ended: result, endings, next commands. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.events import EvaluationRecorded
from contracts.replay_state import GoalState
from contracts.text import floor, inert, interval, plain, score, wrapped
from contracts.words import Phase
from demo.published import Published
from demo.watch import clock
from projection.rows import (
    KEPT,
    NO_GAIN,
    REFUTED,
    REJECTED,
    AttemptRow,
    is_rejected,
    rejection,
)
from projection.view import View

RESUME = ("labmates", "demo", "--execute", "--headless", "--resume")
_LABEL = 13
_WHAT = 42
"""Columns that are left beside a command at 80."""
_REFUTED_AS = {"wrong": "wrong answers"}
_NO_SCORE_AS = {"conflict": "its change does not apply", "memory": "out of memory"}


@dataclass(frozen=True, slots=True)
class Ending:
    """A run that has ended, with what its records do not hold.

    Attributes:
        stopped: By whom, or nothing.
        live: Lanes that still run.
        claims: Todos that are still claimed, by agent.
        several: The store holds more than one goal, so commands must name theirs.
    """

    state: GoalState
    view: View
    stopped: str
    live: Sequence[str]
    claims: dict[str, str]
    workspace: Path
    preset: str
    published: Published | None
    several: bool


def summary_lines(ending: Ending, *, width: int = 80) -> list[str]:
    """Give the closing summary; the first line is the answer."""
    lines = [headline(ending), ""]
    lines.append(f"  {_counts(ending)}")
    for label, count, parts in _endings(ending):
        number = "" if count is None else f"{count:<4}"
        lines += _packed(f"  {label:<{_LABEL - 2}}{number}", parts, width)
    if ending.published is not None:
        lines += _published(ending.published, width)
    lines.append("")
    for label, argv, what in _next(ending):
        command = " ".join(argv)
        gap = max(25, len(command) + 3)
        lines.append(f"  {label:<{_LABEL - 2}}{command:<{gap}}{what}".rstrip())
    lines += ["", "Every score was measured here; the ideas came from the preset (source preset)."]
    lines.append(_left(ending))
    lines.append(f"Workspace: {inert(shown(ending.workspace))}")
    return [line.rstrip() for line in lines]


def headline(ending: Ending) -> str:
    """Say how it ended, in one line."""
    view = ending.view
    took = clock(view.started_at, view.last_at)
    if ending.stopped:
        command = " ".join(RESUME)
        kept = f"{len(view.attempts)} attempts are kept."
        return f"stopped by {ending.stopped} at {took}; {kept}\nGo on: {command}"
    dollars = f"{view.budget.cost_usd:.2f} USD"
    if view.phase == Phase.DONE:
        return f"done: {result(view)}.   {took}, {dollars}"
    return f"{view.phase or 'unapproved'}: {result(view)}"


def result(view: View) -> str:
    """Say what a goal that is over has reached, against its target."""
    unit = inert(view.unit)
    target = f"target {score(view.target, unit)}" if view.target is not None else "no target"
    found = score(view.best.spread.value, unit) if view.best else "nothing accepted"
    if view.phase == Phase.DONE and view.best:
        ends = interval(view.best.spread.low, view.best.spread.high)
        return f"{found} on {view.decided_on} {ends}, {target}"
    wanted = score(view.target, unit)
    return f"{found} of {wanted} after {len(view.attempts)} attempts; {_gap(view)}"


def _gap(view: View) -> str:
    if view.target is None:
        return "no target was set."
    if view.best is None:
        return f"all of {score(view.target, view.unit)} is missing."
    missing = view.target - view.best.spread.value
    if view.direction == "minimize":
        missing = -missing
    if missing <= 0:
        low = score(view.best.spread.low, view.unit)
        return f"the low end, {low}, does not reach it."
    return f"{score(missing, view.unit)} are missing."


def _counts(ending: Ending) -> str:
    state, view = ending.state, ending.view
    first = next(
        (
            event.at
            for _, event in sorted(state.events.items())
            if isinstance(event, EvaluationRecorded)
            and event.evaluation.measurement.value is not None
        ),
        None,
    )
    if first is None or state.created_at is None:
        when = "no score yet"
    else:
        when = f"first score after {(first - state.created_at).total_seconds():.0f} s"
    return f"{when}; {len(view.attempts)} attempts, {view.counts['hypotheses']} hypotheses"


def last_rows(view: View) -> list[AttemptRow]:
    """Give the last attempt of each hypothesis, in order of the first ones."""
    found: dict[str, AttemptRow] = {}
    for row in view.attempts:
        found[row.hypothesis_id] = row
    return list(found.values())


def _endings(ending: Ending) -> list[tuple[str, int | None, list[str]]]:
    """Give label, count and parts of each way to end; each hypothesis is in one of them."""
    view, state = ending.view, ending.state
    rows = last_rows(view)
    unit = view.unit
    kept = [row for row in rows if row.result == KEPT]
    refuted = [row for row in rows if row.result.startswith(REFUTED)]
    flat = [row for row in rows if row.result.startswith(NO_GAIN)]
    unscored = [row for row in rows if row.result.endswith(", retired")]
    rejected = [item for item in state.hypothesis_items() if is_rejected(item)]
    ended = [*kept, *refuted, *flat, *unscored]
    rest = [row for row in rows if row not in ended and row.result != REJECTED]
    untried = [
        item.hypothesis.title
        for item in state.hypothesis_items()
        if item.hypothesis and not item.attempts and item not in rejected
    ]
    found: list[tuple[str, int | None, list[str]]] = [
        ("kept", len(kept), [f"{row.title} {_decided(row, view, unit)}" for row in kept]),
        ("refuted", len(refuted), [f"{row.title} ({_word(row)})" for row in refuted]),
        ("no gain", len(flat), [_flat(row, state) for row in flat]),
        ("no score", len(unscored), [f"{row.title} ({_unscored(row, view)})" for row in unscored]),
    ]
    if rejected:
        said = [
            f"{item.hypothesis.title} ({rejection(state, item)})"
            for item in rejected
            if item.hypothesis
        ]
        found.append((REJECTED, len(rejected), said))
    if rest:
        found.append(("not ended", len(rest), [f"{row.title} ({row.result})" for row in rest]))
    if untried:
        found.append(("not tried", len(untried), untried))
    found.append(("boundary", None, [_boundary(view)]))
    return found


def _packed(head: str, parts: Sequence[str], width: int) -> list[str]:
    """Set parts behind a head, a comma between; lines break between parts if they can."""
    room = width - len(head)
    lines: list[str] = []
    shown_parts = [inert(part) for part in parts]
    for number, part in enumerate(shown_parts):
        word = part if number == len(shown_parts) - 1 else f"{part},"
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines += wrapped(word, room)
    heads = [head, *[" " * len(head)] * len(lines)]
    return [f"{left}{line}".rstrip() for left, line in zip(heads, lines or [""], strict=False)]


def _decided(row: AttemptRow, view: View, unit: str) -> str:
    found = row.held if view.decided_on == "held-out" else row.dev
    return score(found.value if found else None, unit)


def _word(row: AttemptRow) -> str:
    word = row.result.removeprefix(f"{REFUTED}, ")
    return _REFUTED_AS.get(word, word)


def _flat(row: AttemptRow, state: GoalState) -> str:
    """Say what was not reached: the low end that decides, or the check that failed."""
    attempt = state.attempts[row.number]
    is_held_out = row.result.endswith("held-out")
    where = " on held-out" if is_held_out else ""
    found = attempt.holdout if is_held_out else attempt.evaluation
    ratio = found.measurement.ratio if found and found.measurement else None
    rules = state.contract.evaluation if state.contract else None
    if found is None or ratio is None or rules is None:
        return f"{row.title}: {row.reason or row.result}"
    needed = 1 + rules.min_gain
    if ratio.low < needed:
        low = score(ratio.low)
        if low == score(needed):
            low = f"{ratio.low:.4f}"
        return f"{row.title}: low end {low} against the champion, needed {floor(needed)}{where}"
    failed = next((check for check in found.checks if not check.passed), None)
    if failed is None:
        return f"{row.title}: {row.reason or row.result}{where}"
    return f"{row.title}: {failed.name} {plain(failed.actual)}, needed {failed.expected}{where}"


def _unscored(row: AttemptRow, view: View) -> str:
    word = row.result.removesuffix(", retired")
    count = sum(1 for each in view.attempts if each.hypothesis_id == row.hypothesis_id)
    if word == "timeout" and count > 1:
        return f"{({2: 'two', 3: 'three'}).get(count, count)} timeouts"
    if word == "crash" and row.log:
        return f"{row.reason}, {row.log}"
    return _NO_SCORE_AS.get(word, word)


def _boundary(view: View) -> str:
    kept = [row for row in view.attempts if row.result == KEPT]
    refused = [row for row in view.attempts if row.boundary_clean is False]
    if any(row.boundary_clean is False for row in kept):
        first = "not clean in one that was promoted: labmates verify"
    else:
        first = "clean in all promoted" if kept else "nothing was promoted"
    if not refused:
        return f"{first}; no edit outside it was tried"
    edits = "1 edit" if len(refused) == 1 else f"{len(refused)} edits"
    reasons = ", ".join(dict.fromkeys(row.reason for row in refused if row.reason))
    return f"{first}; {edits} refused ({reasons.replace(': is protected', ' is protected')})"


def _published(found: Published, width: int) -> list[str]:
    head = f"  {'published':<{_LABEL - 2}}"
    value = f"{found.value:.1f}x" if found.value is not None else f"none ({found.problem})"
    text = f"{value} held-out by the published, laxer protocol"
    if found.theirs:
        text += f" ({found.theirs})"
    return _packed(head, [text], width)


def next_commands(ending: Ending) -> list[list[str]]:
    """Give the next commands as argument lists, the best first."""
    return [argv for _, argv, _ in _next(ending)]


def _next(ending: Ending) -> list[tuple[str, list[str], str]]:
    goal = ["--goal-id", ending.view.goal_id] if ending.several else []
    commit = ending.view.champion_commit[:7]
    found = []
    if ending.view.champion_hypothesis_id:
        branch = f"branch labmates/{ending.view.goal_id}/champion, {commit}"
        what = commit if ending.several or len(branch) > _WHAT else branch
        found.append(("See it", ["labmates", "champion", "diff", *goal], what))
    check = "" if ending.several else "derives this result again from the records"
    found.append(("Check it", ["labmates", "verify", *goal], check))
    read = "" if ending.several else "what was tried, kept and refuted"
    found.append(("Read it", ["labmates", "report", *goal], read))
    found.append(("Yours", ["labmates", "plan"], "in a repository of your own"))
    return found


def _left(ending: Ending) -> str:
    if not ending.live and not ending.claims:
        return "All lanes ended, no claim is open."
    parts = []
    if ending.live:
        parts.append(f"still running: {', '.join(ending.live)} (labmates down)")
    if ending.claims:
        open_claims = ", ".join(f"{todo} by {agent}" for agent, todo in ending.claims.items())
        parts.append(f"still claimed: {open_claims}; the lease ends by itself")
    return inert("; ".join(parts))


def shown(path: Path) -> str:
    """Give a path with the home folder as `~`."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def summary_document(ending: Ending) -> dict[str, Any]:
    """Give the summary as one document."""
    view = ending.view
    best = view.best
    return {
        "goal_id": view.goal_id,
        "preset": ending.preset,
        "phase": str(view.phase) if view.phase else None,
        "stopped": ending.stopped or None,
        "revision": view.revision,
        "target": view.target,
        "target_met": view.target_met,
        "best": best.spread.to_json_dict() | {"hypothesis_id": best.hypothesis_id}
        if best
        else None,
        "champion_commit": view.champion_commit or None,
        "attempts": [
            {
                "attempt": row.number,
                "hypothesis_id": row.hypothesis_id,
                "title": row.title,
                "dev": row.dev.value if row.dev else None,
                "holdout": row.held.value if row.held else None,
                "result": row.result,
                "reason": row.reason,
                "log": row.log or None,
            }
            for row in view.attempts
        ],
        "published_holdout": ending.published.value if ending.published else None,
        "cost_usd": view.budget.cost_usd,
        "workspace": str(ending.workspace),
        "live": list(ending.live),
        "claims": ending.claims,
        "next": next_commands(ending),
    }
