"""The dry-run packet for a person, at 80 to 120 columns; rendered from the packet alone."""

from pathlib import Path

from contracts.text import cut, fact, inert, score, table
from contracts.words import Role
from demo.packet import DemoPacket
from demo.summary import shown

_WIDE = 120
_MAY_WRITE = {
    Role.CURATOR: "contract, gates, projections",
    Role.PROPOSER: "hypotheses, successor todos",
    Role.EXECUTOR: "branches, evidence, retry packets",
    Role.EVALUATOR: "evaluations, candidates, gates",
}
_MUST_NOT = {
    Role.CURATOR: "pick winners, run experiments",
    Role.PROPOSER: "delete negative evidence",
    Role.EXECUTOR: "edit protected files, promote",
    Role.EVALUATOR: "promote on dev evidence alone",
}


def packet_lines(packet: DemoPacket, *, width: int = 80) -> list[str]:
    """Give the whole screen: what it is, the facts, lanes, controls, how to start it."""
    is_wide = width >= _WIDE
    lines = [f"Dry run of preset {packet.preset}. Nothing was started, written or spent.", ""]
    for label, text in _facts(packet, is_wide=is_wide):
        lines += fact(label, inert(text), width=width)
    lines += ["", *_lanes(packet, width), ""]
    ask = " ".join(packet.ask)
    asked = "Before each step every lane asks, and so can you (it only reads):"
    lines += [f"{asked}  {ask}"] if is_wide else [asked, f"  {ask}"]
    lines.append("")
    for number, control in enumerate(packet.controls):
        label = "" if number else "Step in"
        lines.append(f"{label:<11}{' '.join(control.argv):<27}{control.effect}")
    start = " ".join(packet.start)
    lines += ["", f"{'Start it':<11}{start:<37}here, without tmux"]
    return [cut(line.rstrip(), width) for line in lines]


def _facts(packet: DemoPacket, *, is_wide: bool) -> list[tuple[str, str]]:
    unit, budget = packet.unit, packet.budget
    target, reference = score(packet.target, unit), score(1.0, unit)
    where = f"{target} on {packet.target_split} data"
    if is_wide:
        stops = "the queue is empty" if packet.stop == "queue_empty" else "the target is reached"
        where += f" (the reference is {reference}); stops when {stops}"
    else:
        where += f"; the reference is {reference}"
    protected = " ".join(name.replace("/**", "/") for name in packet.protected)
    parallel = "one at a time" if budget.max_parallel == 1 else f"{budget.max_parallel} at a time"
    spent = f"{budget.max_attempts} attempts, {parallel}, {budget.cost_usd:.2f} USD (no model)"
    if budget.minutes:
        spent += f", about {budget.minutes} minutes" + (" on 2 cores" if is_wide else "")
    gates = "none that waits for a person; your own goals can have them"
    return [
        ("Goal", packet.objective.removesuffix(".")),
        ("Target", where if packet.target is not None else "none"),
        (
            "Contract",
            f"{packet.contract_hash[:8]}  edit {' '.join(packet.editable)}, protect {protected}",
        ),
        ("Budget", spent),
        ("Gates", "every promotion waits for you" if packet.owner_gate else gates),
        ("Workspace", f"{shown(Path(packet.workspace))}, new; your files are not touched"),
    ]


def _lanes(packet: DemoPacket, width: int) -> list[str]:
    runs = [
        (lane.agent_id, " ".join(lane.argv[:6]), _MAY_WRITE[lane.role]) for lane in packet.lanes
    ]
    runs.append(("(watch)", " ".join(packet.watch), "nothing"))
    if width >= _WIDE:
        return table(("LANE", "RUNS", "MAY WRITE"), runs, width=width)
    roles = [(lane.agent_id, _MAY_WRITE[lane.role], _MUST_NOT[lane.role]) for lane in packet.lanes]
    first = table(("LANE", "RUNS"), [row[:2] for row in runs], width=width)
    return [*first, "", *table(("LANE", "MAY WRITE", "MUST NOT"), roles, width=width)]
