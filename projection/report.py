"""The report and the audit trail, as text: pure over the replayed goal and its verification."""

from contracts.findings import findings
from contracts.labels import CONTRADICTING
from contracts.replay_state import AttemptState, GoalState, ItemState
from contracts.text import NONE, duration, gap, inert, score
from contracts.words import Direction, Phase, State
from projection.attempts import spread_text
from projection.rows import KEPT, REFUTED, AttemptRow, ending
from projection.verify import Verification
from projection.view import View

TSV_COLUMNS = ("iteration", "kind", "score", "pass", "guard_pass", "delta", "decision", "change")


def _cell(text: object) -> str:
    """Make text safe in a Markdown table."""
    return inert(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def headline(view: View) -> str:
    """Say the result in one sentence."""
    goal = f"target {score(view.target, view.unit)}" if view.target is not None else "no target"
    if view.best is None:
        return f"{view.phase or 'unapproved'}: nothing was accepted yet; {goal}."
    found = spread_text(view.best.spread, view.unit)
    return f"{view.phase or 'unapproved'}: {found} on {view.decided_on}, {goal}."


def missing(view: View) -> str:
    """Say what the target still lacks."""
    return gap(
        view.best.spread.value if view.best else None,
        view.target,
        down=view.direction == Direction.MINIMIZE,
        met=view.target_met or view.target is None,
        improvements=(view.improvements, view.improvements_required),
        unit=view.unit,
    )


def _attempt_table(view: View) -> list[str]:
    lines = [
        "| # | hypothesis | change | dev | against the champion | held-out | result | reason |",
        "|--:|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.number} | {row.hypothesis_id} | {_cell(row.title)} "
        f"| {spread_text(row.dev, view.unit)} | {spread_text(row.against)} "
        f"| {spread_text(row.held, view.unit)} | {_cell(row.result)} | {_cell(_why(row))} |"
        for row in view.attempts
    ]
    return lines


def _why(row: AttemptRow) -> str:
    return f"{row.reason}; log {row.log}" if row.log else row.reason


def _signers(state: GoalState, item: ItemState) -> str:
    names = []
    for revision in item.signatures[-2:]:
        event = state.events[revision]
        names.append(f"{event.agent_id} as {event.role} (rev {revision})")
    return ", ".join(names) or NONE


def _endings(state: GoalState) -> list[str]:
    lines = ["| hypothesis | change | end | reason | signed by |", "|---|---|---|---|---|"]
    for item in state.hypothesis_items():
        if item.terminal:
            title = item.hypothesis.title if item.hypothesis else ""
            lines.append(
                f"| {item.hypothesis_id} | {_cell(title)} | {item.state} | {_cell(ending(state, item))} "
                f"| {_cell(_signers(state, item))} |"
            )
    return lines


def _findings(state: GoalState) -> list[str]:
    """List what decision and peer review say together."""
    found = findings(state)
    if not found:
        return ["None."]
    lines = ["| hypothesis | end | finding | why | reviews |", "|---|---|---|---|---|"]
    for each in found:
        words = [
            f"{review.reviewer}: {review.verdict}"
            + ("" if review.independent else f" ({review.why_not})")
            for review in each.reviews
            if review.current
        ]
        lines.append(
            f"| {each.hypothesis_id} | {each.outcome} | {each.status} | {_cell(each.why)} "
            f"| {_cell('; '.join(words) or NONE)} |"
        )
    return lines


def _negative(view: View) -> list[str]:
    found = [
        row
        for row in view.attempts
        if row.result.startswith(REFUTED) or row.verdict in CONTRADICTING
    ]
    if not found:
        return ["None."]
    return [
        f"- {row.hypothesis_id} {_cell(row.title)} ({_cell(row.family)}), attempt {row.number}: "
        f"{_cell(_refuted(row))}; {_cell(row.reason)}"
        for row in found
    ]


def _refuted(row: AttemptRow) -> str:
    return row.result if row.result.startswith(REFUTED) else f"{row.verdict}, then {row.result}"


def _boundary(view: View) -> str:
    kept = [row for row in view.attempts if row.result == KEPT]
    refused = [row for row in view.attempts if row.boundary_clean is False]
    clean = all(row.boundary_clean for row in kept)
    first = "clean in all promoted" if kept and clean else "nothing promoted"
    if kept and not clean:
        first = "not clean in a promoted one"
    names = ", ".join(f"attempt {row.number} ({_cell(row.reason)})" for row in refused)
    return f"{first}; refused: {names or NONE}"


def markdown(state: GoalState, view: View, found: Verification) -> str:
    """Write `report.md`: result, champion, attempts, refutations, gaps, boundary, signatures."""
    contract = state.contract
    champion = view.champion_commit or NONE
    budget = view.budget
    sound = "sound" if found.sound else f"they contradict themselves ({len(found.violations)})"
    spent = (
        f"{budget.attempts_used} of {budget.attempts_limit} attempts, {budget.holdouts_used} of "
        f"{budget.holdouts_limit} held-out questions, {budget.cost_usd:.2f} USD"
    )
    untried = [row for row in state.hypothesis_items() if not row.terminal]
    lines = [
        f"# {view.goal_id}: {headline(view)}",
        "",
        f"- Objective: {_cell(view.objective)}",
        f"- Metric: {_cell(view.metric)}, {view.direction}",
        f"- Contract: {state.contract_hash}",
        f"- Base: {contract.base_commit if contract else NONE}",
        f"- Champion: {view.champion_hypothesis_id or 'the base'}, commit {champion}",
        f"- Missing: {missing(view)}",
        f"- Spent: {spent}, {_span(view)}",
        f"- Boundary: {_boundary(view)}",
        f"- Records: {sound}, {found.stats['events']} events, revision {view.revision}",
        "",
        "## Attempts",
        "",
        *_attempt_table(view),
        "",
        "## What was refuted, and why",
        "",
        *_negative(view),
        "",
        "## How each hypothesis ended",
        "",
        *_endings(state),
        "",
        "## Findings",
        "",
        *_findings(state),
        "",
        "## What has not ended",
        "",
        *([f"- {item.hypothesis_id}: {item.state}" for item in untried] or ["Nothing."]),
        "",
        "## Heads of the streams",
        "",
        "Keep these elsewhere, and a rewritten history can be told from this one.",
        "",
        *[f"- {stream}: {head}" for stream, head in sorted(found.heads.items())],
        "",
    ]
    return "\n".join(lines)


def _span(view: View) -> str:
    if view.started_at is None or view.last_at is None:
        return "0s"
    return duration((view.last_at - view.started_at).total_seconds())


# The audit trail -----------------------------------------------------------------------------


def research(state: GoalState, view: View) -> str:
    """Write `research.md`: the configuration and the history for people."""
    contract = state.contract
    lines = [f"# Research on {view.goal_id}", ""]
    if contract is not None:
        target = score(view.target, view.unit)
        lines += [
            f"- objective: {_cell(view.objective)}",
            f"- editable: {_cell(', '.join(contract.context.editable))}",
            f"- protected: {_cell(', '.join(contract.context.protected))}",
            f"- dev: `{inert(contract.evaluation.dev)}`",
            f"- held-out: `{inert(contract.evaluation.holdout)}`",
            f"- target: {target} by {contract.evaluation.target_by}",
            f"- cap: {contract.policy.max_attempts} attempts",
            "",
        ]
    return "\n".join([*lines, "## History", "", *_attempt_table(view), ""])


def research_log(state: GoalState) -> str:
    """Write `research_log.md`: one line per event, in order of revision."""
    lines = []
    for revision, event in sorted(state.events.items()):
        role = f" as {event.role}" if event.role else ""
        by = " (written by quota)" if event.writer == "quota" else ""
        what = [event.todo_id, event.hypothesis_id]
        if event.to_state:
            what.append(f"-> {event.to_state}")
        if event.reason:
            what.append(event.reason)
        text = " ".join(inert(part) for part in what if part)
        at = event.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append(f"- {revision} {at} {event.agent_id}{role}{by}: {event.type} {text}".rstrip())
    return "\n".join(lines) + "\n"


def results_tsv(state: GoalState, view: View) -> str:
    """Write `results.tsv`: iteration 0 is the baseline; a reverted attempt has its row too."""
    rows = ["\t".join(TSV_COLUMNS)]
    if state.baseline is not None:
        value = state.baseline.dev.value
        rows.append("\t".join(("0", "baseline", _number(value), "1", "", "", "keep", "baseline")))
    rows += ["\t".join(_tsv_row(row, state.attempts[row.number])) for row in view.attempts]
    return "\n".join(rows) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _tsv_row(row: AttemptRow, attempt: AttemptState) -> tuple[str, ...]:
    checks = attempt.evaluation.checks if attempt.evaluation else ()
    guards = [check.passed for check in checks if check.name == "guard_exit"]
    passed = "" if not checks else str(int(all(check.passed for check in checks)))
    measured = attempt.evaluation.measurement if attempt.evaluation else None
    delta = measured.difference.value if measured and measured.difference else None
    return (
        str(row.number),
        "attempt",
        _number(row.dev.value if row.dev else None),
        passed,
        str(int(all(guards))) if guards else "",
        _number(delta),
        "keep" if row.result == KEPT else "revert",
        inert(row.title),
    )


def final_report(state: GoalState, view: View, found: Verification) -> str | None:
    """Write `final_report.md`; None while the goal has not stopped."""
    if view.phase not in {Phase.DONE, Phase.ESCALATE}:
        return None
    promoted = [item for item in state.hypothesis_items() if item.state == State.PROMOTED]
    lines = [
        f"# {view.phase}",
        "",
        headline(view),
        "",
        f"- remaining gap: {missing(view)}",
        f"- kept: {', '.join(_title(item) for item in promoted) or NONE}",
        f"- attempts: {view.budget.attempts_used} of {view.budget.attempts_limit}",
        f"- records: {'sound' if found.sound else 'contradict themselves'}",
        "",
    ]
    return "\n".join(lines)


def _title(item: ItemState) -> str:
    return _cell(item.hypothesis.title) if item.hypothesis else ""


def trail(state: GoalState, view: View, found: Verification) -> dict[str, str]:
    """Give every file of a report by its name."""
    files = {
        "report.md": markdown(state, view, found),
        "research.md": research(state, view),
        "research_log.md": research_log(state),
        "results.tsv": results_tsv(state, view),
    }
    final = final_report(state, view, found)
    if final is not None:
        files["final_report.md"] = final
    return files
