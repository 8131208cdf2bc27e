"""`labmates gate show`: the question, the numbers it rests on, what follows, and the two commands."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from contracts.errors import RecordsError
from contracts.records import Check, Evaluation, Holdout, Measurement
from contracts.store.reader import Reader
from contracts.text import NONE, duration, ends, fact, inert, interval, plain, score, table
from contracts.words import Stream
from roles.commands.shown_gate import ShownGate
from roles.goal.goals import contract_of

_LABEL = 12


def measured(
    reader: Reader, todo_id: str, attempt: str
) -> tuple[Evaluation | None, Holdout | None]:
    """Find the last evaluation and the last answered held-out question of an item's attempt."""
    evaluation: Evaluation | None = None
    holdout: Holdout | None = None
    for _, fields in reader.entries(Stream.EVALUATOR):
        if fields.get("todo") != todo_id or fields.get("attempt", "") != attempt:
            continue
        try:
            body = json.loads(fields.get("body") or "{}")
            if fields.get("type") == "evaluation_recorded":
                evaluation = Evaluation.model_validate_json(json.dumps(body["evaluation"]))
            elif fields.get("type") == "holdout_recorded":
                found = Holdout.model_validate_json(json.dumps(body["holdout"]))
                holdout = found if found.status == "measured" else holdout
        except (ValueError, KeyError, TypeError, ValidationError):
            continue  # `labmates verify` names it; here only what can be read is shown
    return evaluation, holdout


def gate_text(reader: Reader, gate: ShownGate, *, width: int = 80) -> str:
    """Give the whole page of one gate."""
    item, body = gate.item, gate.body
    kind = inert(gate.fields.get("kind", ""))
    status = gate.fields.get("status", "")
    since = f"open for {duration(gate.open_for_s)}" if gate.is_open else f"{inert(status)}"
    asked = f"rev {gate.fields.get('opened_rev', NONE)}"
    lines = [ends(f"{gate.gate_id}  {kind}, {since}", asked, width=width), ""]
    lines += [inert(body.get("question") or "No question was written down."), ""]
    named = [inert(part) for part in (item["id"], item.get("hyp"), item.get("title")) if part]
    family = f"  (family {inert(item['family'])})" if item.get("family") else ""
    lines += _fact("Idea", "  ".join(named) + family, width)
    state = f"{inert(item.get('state'))}, version {item.get('version', NONE)}"
    lines += _fact("State", state, width)
    if item.get("commit"):
        commit = inert(item["commit"])[:10]
        attempt = item.get("attempt", "")
        lines += _fact("Change", f"commit {commit}      labmates attempt show {attempt}", width)
    evaluation, holdout = measured(reader, item["id"], item.get("attempt", ""))
    if evaluation or holdout:
        lines += ["", *_numbers(evaluation, holdout, _unit(reader), width), ""]
    for each in body.get("recoveries") or ():
        lines += _fact("Recovery", _recovery(each), width)
    for label, name in (
        ("After yes", "after_yes"),
        ("After no", "after_no"),
        ("Until then", "meanwhile"),
    ):
        if body.get(name):
            lines += _fact(label, inert(body[name]), width)
    if gate.is_open:
        lines.append("")
        lines.append(f"{'Yes':<{_LABEL}}labmates gate approve {gate.gate_id} {gate.hash}")
        lines.append(f'{"No":<{_LABEL}}labmates gate reject {gate.gate_id} --reason "..."')
    else:
        lines += _fact("Decided", f"{inert(status)} by {inert(gate.fields.get('by'))}", width)
    return "\n".join(lines) + "\n"


def gate_document(reader: Reader, gate: ShownGate) -> dict[str, Any]:
    """Give the same as one JSON document."""
    evaluation, holdout = measured(reader, gate.item["id"], gate.item.get("attempt", ""))
    return {
        "gate_id": gate.gate_id,
        "goal_id": reader.goal_id,
        "status": gate.fields.get("status", ""),
        "kind": gate.fields.get("kind", ""),
        "todo_id": gate.item["id"],
        "hypothesis_id": gate.item.get("hyp") or None,
        "state": gate.item.get("state", ""),
        "version": int(gate.item.get("version") or 0),
        "commit": gate.item.get("commit") or None,
        "revision": gate.touched,
        "hash": gate.hash,
        "open_for_s": gate.open_for_s,
        "gate": gate.body,
        "evaluation": evaluation.to_json_dict() if evaluation else None,
        "holdout": holdout.to_json_dict() if holdout else None,
        "decided_by": gate.fields.get("by") or None,
    }


def _unit(reader: Reader) -> str:
    try:
        return inert(contract_of(reader).evaluation.unit)
    except RecordsError:
        return ""  # `labmates verify` names it


def _recovery(found: Mapping[str, Any]) -> str:
    """Say in a line how a claim ended without its step."""
    attempt = f", attempt {found['attempt']}" if found.get("attempt") else ""
    text = f"{found.get('reason')}: {found.get('agent_id')} at fence {found.get('fence')}{attempt}"
    detail = str(found.get("detail") or "")
    return inert(f"{text}; {detail}" if detail else text)


def _fact(label: str, text: str, width: int) -> list[str]:
    return fact(label, text, width=width, label_width=_LABEL)


def _numbers(
    evaluation: Evaluation | None, holdout: Holdout | None, unit: str, width: int
) -> list[str]:
    rows: list[tuple[str, str, str]] = []
    checks: list[Check] = []
    if evaluation:
        rows += _measurement("dev", evaluation.measurement, unit)
        checks += evaluation.checks
    if holdout and holdout.measurement:
        rows += _measurement("held-out", holdout.measurement, unit)
        checks += holdout.checks
    lines = table(("", "value", "interval"), rows, width=width, right=(1,))
    if checks:
        shown = [
            (
                inert(check.name),
                inert(plain(check.actual)),
                inert(plain(check.expected)),
                "pass" if check.passed else "fail",
            )
            for check in checks
        ]
        lines += ["", *table(("CHECK", "ACTUAL", "EXPECTED", ""), shown, width=width)]
    return lines


def _measurement(name: str, found: Measurement, unit: str) -> list[tuple[str, str, str]]:
    spread = f"{interval(found.spread.low, found.spread.high)}" if found.spread else ""
    rows = [(name, score(found.value, unit), spread or inert(found.label or ""))]
    if found.ratio:
        ratio = found.ratio
        against = ("  against champion", score(ratio.value), interval(ratio.low, ratio.high))
        rows.append(against)
    return rows
