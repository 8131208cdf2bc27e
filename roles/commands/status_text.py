"""`labmates status` for a person; rendered from the document of `roles.commands.status_view` alone."""

from datetime import datetime
from typing import Any

from contracts.text import NONE, cut, duration, ends, fact, inert, score, table, with_interval
from quota.budget import cost_text

_LABEL = 15
_WIDE = 120
_OVER = {
    "done": "goal_done, nothing is left to resume",
    "escalate": "goal_escalated, nothing is left to resume",
}


def status_text(document: dict[str, Any], *, width: int = 80) -> str:
    """Give the whole screen: answer, what waits for the person, lanes, frontier, budget."""
    unit = inert(document["metric"]["unit"])
    clock = datetime.fromisoformat(document["at"]).astimezone().strftime("%H:%M:%S")
    head = f"{inert(document['goal_id'])}   {document['phase']}   rev {document['revision']}"
    lines = [ends(head, clock, width=width), "", _best(document, unit)]
    if document["phase"] == "escalate" and document["missing"]:
        lines += _fact("Missing", inert(document["missing"]), width)
    if document["records"]:
        lines += _fact("Records", f"{inert(document['records'])}; labmates verify", width)
    if document["paused"] is not None:
        then = _OVER.get(document["phase"], "labmates resume")
        lines += _fact("Paused", f"{inert(document['paused'])}; {then}", width)
    for position, gate in enumerate(document["gates"]):
        lines += _gate(gate, unit, width, first=position == 0)
    lines += ["", *_lanes(document["lanes"], width), "", *_frontier(document, width), ""]
    lines += _budget(document["budget"])
    lanes = document["lanes"]
    if lanes and all(lane["state"] == "down" for lane in lanes):
        is_over = document["phase"] in _OVER
        lines += ["", "Read it: labmates report" if is_over else "Start them: labmates up"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fact(label: str, text: str, width: int) -> list[str]:
    return fact(label, text, width=width, label_width=_LABEL)


def _value(found: dict[str, Any], unit: str) -> str:
    return with_interval(found["value"], found["low"], found["high"], unit)


def _best(document: dict[str, Any], unit: str) -> str:
    best, metric = document["best"], document["metric"]
    parts = [_value(best, unit) if best else "none yet"]
    if metric["target"] is not None:
        parts.append(f"target {score(metric['target'], unit)}")
    if best:
        commit = inert(best["commit"] or NONE)[:7]
        parts.append(f"{inert(best['hypothesis_id'])}, commit {commit}")
    label = f"Best {metric['split']}"
    return f"{label:<{_LABEL}}{'   '.join(parts)}"


def _gate(gate: dict[str, Any], unit: str, width: int, *, first: bool) -> list[str]:
    label = "Waits for you" if first else ""
    parts = [_value(gate, unit)] if gate["value"] is not None else [inert(gate["kind"])]
    parts.append(inert(gate["hypothesis_id"] or gate["todo_id"]))
    parts.append(f"since {duration(gate['open_for_s'])}")
    text, command = ", ".join(parts), f"labmates gate show {inert(gate['gate_id'])}"
    if width >= _WIDE:
        return [f"{label:<{_LABEL}}{text}        {command}"]
    return [f"{label:<{_LABEL}}{text}", f"{'':<{_LABEL}}{command}"]


def _lanes(lanes: list[dict[str, Any]], width: int) -> list[str]:
    wide = width >= _WIDE and any(lane["last"] for lane in lanes)
    head = [
        "LANE",
        "STATE",
        "SINCE",
        "TODO",
        "DOES, OR WAITS FOR",
        *(["LAST WROTE"] if wide else []),
    ]
    rows = []
    for lane in lanes:
        does = (
            lane["doing"]
            if lane["state"] in {"working", "draining"}
            else lane["waits_for"] or lane["doing"]
        )
        row = [
            inert(lane["agent_id"]),
            inert(lane["state"]),
            duration(lane["since_s"]) if lane["since_s"] is not None else "",
            inert(lane["todo_id"]),
            cut(inert(does), 40) if wide else inert(does),
        ]
        rows.append([*row, inert(lane["last"])] if wide else row)
    if not rows:
        return ["LANE         nobody is on the roster: labmates agent add NAME --role ROLE"]
    return table(head, rows, width=width)


def _frontier(document: dict[str, Any], width: int) -> list[str]:
    selector = f", selector {document['selector']}" if document["selector"] else ""
    lines = [f"{'FRONTIER':<13}{document['frontier_total']} runnable{selector}"]
    for position, each in enumerate(document["frontier"], start=1):
        name = f"{position}  {inert(each['hypothesis_id'] or each['todo_id'])}  "
        title, why = inert(each["title"] or ""), inert(each["rank_reason"])
        if width >= _WIDE:
            lines.append(cut(f"{name}{title:<38}  {why}", width))
        else:
            lines.append(cut(f"{name}{title}", width))
            if why:
                lines.append(cut(f"{'':<13}{why}", width))
    more = document["frontier_total"] - len(document["frontier"])
    return [*lines, f"{'':<13}and {more} more"] if more > 0 else lines


def _budget(budget: dict[str, Any]) -> list[str]:
    attempts, lanes, holdout = budget["attempts"], budget["parallel"], budget["holdout"]
    first = (
        f"attempts {attempts['used']} of {attempts['limit']}   "
        f"parallel {lanes['used']} of {lanes['limit']}   cost {cost_text(budget['cost_usd'])}"
    )
    second = []
    if budget["seconds_left"] is not None and budget["deadline_s"]:
        used = max(0, budget["deadline_s"] - budget["seconds_left"])
        second.append(f"time {duration(used)} of {duration(budget['deadline_s'])}")
    if holdout["limit"] is not None:
        second.append(f"held-out questions {holdout['used']} of {holdout['limit']}")
    lines = [f"{'BUDGET':<13}{first}"]
    return [*lines, f"{'':<13}{'    '.join(second)}"] if second else lines


def event_line(fields: dict[str, str]) -> str:
    """Give one event as one line, for a status that is watched without a terminal."""
    at = datetime.fromtimestamp(int(fields.get("at", "0")) / 1000).astimezone()
    moved = f"{fields['from']} -> {fields['to']}" if fields.get("from") and fields.get("to") else ""
    parts = [
        f"{at:%H:%M:%S}",
        f"rev {fields.get('rev', NONE)}",
        f"{fields.get('agent', NONE)}",
        fields.get("type", NONE),
        *(fields[name] for name in ("todo", "hyp", "gate") if fields.get(name)),
        *([moved] if moved else []),
        *([fields["reason"]] if fields.get("reason") else []),
    ]
    return inert("  ".join(parts))
