"""The decision of `quota should-run` as a person reads it; rendered from the document alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.text import duration, ends, fact, inert, score
from quota.budget import exhausted, line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WIDTH = 80
_ROLE_EMPTY = {
    "curator": "nothing waits for a curator's signature",
    "evaluator": "nothing waits to be measured, classified or signed",
    "proposer": "nothing to propose, settle or sign",
    "executor": "no hypothesis on the frontier is ready to try",
}
_NOT_FOR_MONEY = ("blocked_by_gate", "goal_paused", "lane_taken_over", "frontier_empty")
_TARGET = {
    "select": "frontier_selected",
    "evaluate": "evaluated",
    "measure_holdout": "promotion_gate",
    "sign": "promoted",
}
_BECAUSE = {
    "measure_baseline": "both splits of the approved base come first (iteration 0)",
    "propose": "fewer untried hypotheses are ready than the contract wants",
    "repropose_or_retire": "it has no way on: retire it, or propose what follows",
    "confirm": "a second attempt must confirm it",
    "evaluate": "its evidence waits to be measured",
    "classify": "it is measured and waits for its class",
    "measure_holdout": "dev evidence supports it; held-out decides",
    "sign": "its evidence is complete and nobody has signed",
    "cosign": "the first signature stands, yours is the second",
}


def render(document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False) -> str:
    """Give the whole answer; first word `yes` or `no`, then the reason as in the JSON."""
    selected, wait = document["selected"], document["wait"]
    rows: list[tuple[str, str]] = []
    if selected:
        rows.append(("take", _take(selected)))
        rows.append(("action", _action(selected)))
    rows.append(("because", _because(document)))
    if selected:
        rows += _blocked(document)
    if document["gap"]:
        rows.append(("gap", _gap(document["gap"])))
    if not selected:
        rows += _waits(document)
    if document["reason"] not in {"budget_exhausted", "agent_unknown", "role_mismatch"}:
        budget = line(document["budget"], parallel=bool(selected))
        cause = "not the cause: " if document["reason"] in _NOT_FOR_MONEY else ""
        rows.append(("budget", cause + budget))
    if document["reason"] == "budget_exhausted" and not wait:
        rows.append(("then", "the goal escalates with this gap in its report, once nothing runs"))
    person = document["reason"] in {"blocked_by_gate", "goal_paused", "contract_unapproved"}
    command = " ".join(inert(word) for word in document["next"])
    lines = [_head(document, width=width, colour=colour), ""]
    for label, text in rows:
        lines += _fact(label, text, width, colour)
    # The command must paste as it looks: it is never wrapped.
    shown = f"\x1b[1m{command}\x1b[0m" if colour else command
    label = "\x1b[2mnext\x1b[0m       " if colour else "next       "
    lines.append(label + ("a person: " if person else "") + shown)
    return "\n".join(lines) + "\n"


def _fact(label: str, text: str, width: int, colour: bool) -> list[str]:
    lines = fact(label, text, width=width)
    if colour and label:
        lines[0] = f"\x1b[2m{label}\x1b[0m{lines[0][len(label) :]}"
    return lines


def _head(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    answer = "yes" if document["should_run"] else "no"
    role = f" as {document['role']}" if document["role"] else ""
    who = f"{inert(document['agent_id'])}{role}, {inert(document['goal_id'])}"
    text = ends(
        f"{answer:<5}{document['reason']}", f"{who} rev {document['revision']}", width=width
    )
    if not colour:
        return text
    return f"\x1b[1;{32 if answer == 'yes' else 33}m{answer}\x1b[0m{text[len(answer) :]}"


def _take(selected: Mapping[str, Any]) -> str:
    parts = (selected["todo_id"], selected["hypothesis_id"], selected["title"])
    return "  ".join(inert(part) for part in parts if part)


def _action(selected: Mapping[str, Any]) -> str:
    action, state = selected["allowed_action"], selected["state"]
    if "fence" in selected:
        left = selected["lease_seconds_left"]
        return f"{action}: {state}, fence {selected['fence']}, lease for another {left} s"
    target = _TARGET.get(action)
    way = f"{state} -> {target}" if target else state
    return f"{action}: {way}, version {selected['version']}"


def _because_yes(selected: Mapping[str, Any]) -> str:
    action = str(selected["allowed_action"])
    if action == "resume":
        claimed = selected.get("claimed_action") or "this item"
        attempt = f", attempt {selected['attempt']}" if selected["attempt"] else ""
        return f"the claim is yours already (for {claimed}{attempt})"
    if action == "select":
        why = inert(selected["rank_reason"]) if selected["rank_reason"] else "first in the queue"
        return f"rank {selected['rank']}: {why}"
    return _BECAUSE.get(action, f"it is first of what needs {action}")


def _because(document: Mapping[str, Any]) -> str:
    selected, reason = document["selected"], str(document["reason"])
    if selected:
        return _because_yes(selected)
    if reason == "frontier_empty":
        return _ROLE_EMPTY.get(document["role"] or "", "nothing is ready")
    if reason == "budget_exhausted":
        return "; ".join(exhausted(document["budget"])) or "the goal takes no new attempt"
    if reason == "blocked_by_gate":
        held = [b for b in document["blocked"] if b["blocked_by"].startswith("gate:")]
        named = ", ".join(
            f"{inert(b['todo_id'])} by {inert(b['blocked_by'][5:])}" for b in held[:3]
        )
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        return f"what is left is held: {named}{more}" if named else "what is left is held by a gate"
    note = (document["wait"] or {}).get("note")
    lanes = document["budget"]["parallel"]
    return {
        "goal_paused": f"the goal is paused: {inert(note)}" if note else "the goal is paused",
        "goal_done": "the target is met and nothing is live any more",
        "goal_escalated": "nothing is live any more and the target is not met",
        "contract_unapproved": "nobody has approved the contract of this goal",
        "baseline_missing": "the evaluator has not recorded the baseline yet",
        "parallel_limit": f"{lanes['used']} of {lanes['limit']} attempts are under way",
        "agent_unknown": f"{inert(document['agent_id'])} is not on the roster",
        "role_mismatch": f"{inert(document['agent_id'])} does not hold that role",
        "lane_taken_over": "a person holds this lane",
        "cooling_down": "the last tries gave no score; the item rests",
    }.get(reason, reason)


def _blocked(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("" if n else "blocked", f"{inert(b['todo_id'])}  blocked_by {inert(b['blocked_by'])}")
        for n, b in enumerate(document["blocked"])
    ]
    more = document["blocked_total"] - len(rows)
    return [*rows, ("", f"and {more} more")] if rows and more > 0 else rows


def _gap(gap: Mapping[str, Any]) -> str:
    unit = inert(gap["unit"])
    shown = f"best {gap['split']} {score(gap['best'], unit)}"
    if gap["target"] is not None:
        shown += f" of {score(gap['target'], unit)}"
    return f"{shown}; {score(gap['missing'], unit)} are missing" if gap["missing"] else shown


def _waits(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    wait = document["wait"]
    if wait is None:
        return [("waits for", "nothing; waiting will not help")]
    on = ", ".join(inert(each) for each in wait["on"])
    first = wait["on"][0] if wait["on"] else ""
    if first.startswith("gate:"):
        on += ", a person's decision"
        if "open_for_s" in wait:
            on += f", open for {duration(wait['open_for_s'])}"
        again = f"when {inert(first[5:])} changes, or in {wait['poll_after_s']} s"
    else:
        again = f"when that changes, or in {wait['poll_after_s']} s"
    return [("waits for", on), ("ask again", again)]
