"""The champion as text and as a document."""

from typing import Any

from contracts.records import Spread
from contracts.replay_state import GoalState
from contracts.text import NONE, inert, score
from projection.attempts import row_json, spread_text
from projection.rows import attempt_row
from projection.view import View, promoted_attempts


def champion_document(state: GoalState, view: View) -> dict[str, Any]:
    """Give the champion as one document."""
    kept = promoted_attempts(state)
    row = attempt_row(state, kept[-1]) if kept else None
    contract = state.contract
    return {
        "goal_id": view.goal_id,
        "revision": view.revision,
        "commit": view.champion_commit or None,
        "base_commit": contract.base_commit if contract else None,
        "hypothesis_id": view.champion_hypothesis_id,
        "branch": f"labmates/{view.goal_id}/champion" if kept else None,
        "target": view.target,
        "target_met": view.target_met,
        "attempt": row_json(row) if row else None,
    }


def champion_lines(state: GoalState, view: View) -> list[str]:
    """Show the promoted change: what, how much, how measured."""
    kept = promoted_attempts(state)
    if not kept:
        base = view.champion_commit[:12] or NONE
        return [f"No change was promoted yet; the champion is the base, {base}."]
    row = attempt_row(state, kept[-1])
    base = state.contract.base_commit[:12] if state.contract else NONE
    goal = score(view.target, view.unit)
    met = "" if view.target is None else (", reached" if view.target_met else ", not reached")
    steps = ", ".join(
        f"{each.hypothesis_id} {spread_text(_decided(state, each.number), view.unit)}"
        for each in kept[:-1]
    )
    return [
        f"{row.hypothesis_id}  {inert(row.title)}  attempt {row.number}",
        "",
        f"held-out   {spread_text(row.held, view.unit)}   target {goal}{met}",
        f"dev        {spread_text(row.dev, view.unit)}",
        f"against    {spread_text(row.against)}  (the champion before it)",
        f"commit     {row.commit}",
        f"base       {base}, the approved one",
        f"branch     labmates/{view.goal_id}/champion",
        f"before it  {steps or 'the base'}",
        "",
        "next       labmates champion diff",
    ]


def _decided(state: GoalState, number: int) -> Spread | None:
    row = attempt_row(state, state.attempts[number])
    return row.held or row.dev
