"""The live view as lines of styled text: pure over the replayed goal and its view."""

import math
from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from contracts.replay_state import GoalState
from contracts.text import cut, ends, floor, inert, score, with_interval
from contracts.words import Phase, Reason, Role
from demo.watch import clock
from projection.rows import KEPT, REFUTED, REJECTED, RUNNING, AttemptRow
from projection.view import LaneRow, View

MAX_LINES = 24
BAR = 26
_LOW, _HIGH = 0.25, 22.0
_WIDE = 120
_FOOT = "Ctrl-C ends the lanes after what runs.   Elsewhere: labmates status"
_FOOT_ATTACHED = "Another process runs this; Ctrl-C looks away.   labmates status"
_ORDER = (Role.CURATOR, Role.PROPOSER, Role.EXECUTOR, Role.EVALUATOR)


def frame(
    state: GoalState,
    view: View,
    now: datetime,
    events: Sequence[str],
    *,
    preset: str,
    width: int = 80,
    height: int = MAX_LINES,
    attached: bool = False,
    said: str = "",
) -> list[Text]:
    """Give the whole view, at most `height` lines of at most `width` columns.

    Args:
        state: The replayed goal.
        view: Its view.
        now: The store's clock.
        events: The last lines of events.
        preset: Name of the preset.
        width: 80 to 120; narrower cuts the last column.
        height: Lines there are; rows of attempts give way, the oldest first.
        attached: This process only watches.
        said: A sentence about the run itself, in the place of the last line.
    """
    is_over = view.phase in {Phase.DONE, Phase.ESCALATE}
    until = view.last_at if is_over else now
    head = f"{view.goal_id}   {view.phase or 'unapproved'}   {clock(view.started_at, until)}"
    lines = [
        Text(ends(f"{head}   rev {view.revision}", f"labmates demo, preset {preset}", width=width)),
        Text(_best(view, width)),
        Text(""),
    ]
    lines[0].stylize("bold", 0, len(view.goal_id))
    foot = [Text(""), *_lane_lines(state, view), Text("")]
    foot += [Text(inert(line)) for line in events[-2:]]
    foot.append(_last(view, attached=attached, said=said))
    lines.append(_table_head(view, width))
    lines += _rows(view, width, room=max(1, height - len(lines) - len(foot)))
    for line in (*lines, *foot):
        line.rstrip()
        line.truncate(width)
    return [*lines, *foot][:height]


def _best(view: View, width: int) -> str:
    unit = inert(view.unit)
    best = view.best.spread if view.best else None
    found = with_interval(best.value, best.low, best.high, unit) if best else "none yet"
    line = f"best {view.decided_on}  {found}   "
    line = f"{line:<33}" + (f"target {score(view.target, unit)}   " if view.target else "")
    line = f"{line:<55}attempts {len(view.attempts)} of {view.budget.attempts_limit}"
    if width >= _WIDE:
        return ends(line, f"needed to beat: {floor(1 + view.min_gain)}", width=width)
    return line


def _table_head(view: View, width: int) -> Text:
    cells = [" "] * BAR
    for value, label in ((_LOW, f"{_LOW:g}"), (1.0, "1x"), (3.0, "3x")):
        _put(cells, _column(value), label)
    if view.target:
        _put(cells, _target_column(view.target), f"{view.target:g}x")
    line = f"{'#':>2}  {'change':<18}{'dev':>4}  {''.join(cells)}{'held':>7}  result"
    if width >= _WIDE:
        line = f"{line:<84}against the champion"
    return Text(line, style="dim")


def _put(cells: list[str], column: int, label: str) -> None:
    for offset, char in enumerate(label):
        if column + offset < BAR:
            cells[column + offset] = char


def _column(value: float) -> int:
    """Give the column of a value on the log scale, within the bar."""
    if not value > 0:
        return 0
    part = math.log(value / _LOW) / math.log(_HIGH / _LOW)
    return max(0, min(BAR - 1, round(part * (BAR - 1))))


def _target_column(target: float) -> int:
    """Give the target's column, rounded down: what reaches the target is never left of it."""
    part = math.log(max(target, _LOW) / _LOW) / math.log(_HIGH / _LOW)
    return max(0, min(BAR - 1, math.floor(part * (BAR - 1))))


def bar(dev: float | None, held: float | None, target: float | None) -> str:
    """Draw one row: `|` baseline, `:` target, `o` dev, `*` held-out, `=` gain, `-` loss."""
    cells = [" "] * BAR
    one = _column(1.0)
    if target:
        cells[_target_column(target)] = ":"
    cells[one] = "|"
    columns = [_column(value) for value in (dev, held) if value is not None]
    for column in range(one + 1, max(columns, default=one)):
        cells[column] = "="
    for column in range(min(columns, default=one) + 1, one):
        cells[column] = "-"
    if dev is not None:
        cells[_column(dev)] = "o"
    if held is not None:
        cells[_column(held)] = "*"
    return "".join(cells)


def _rows(view: View, width: int, *, room: int) -> list[Text]:
    rows = view.attempts
    hidden = len(rows) - room
    lines = []
    if hidden > 0:
        hidden += 1
        rows = rows[hidden:]
        what = f"1 to {hidden}" if hidden > 1 else "1"
        lines.append(Text(f" .. attempts {what}: labmates attempt list", style="dim"))
    return lines + [_row(view, row, width) for row in rows]


def _row(view: View, row: AttemptRow, width: int) -> Text:
    dev, held = (found.value if found else None for found in (row.dev, row.held))
    is_running = row.result == RUNNING or row.result.startswith("waits")
    shown = score(dev) if dev is not None else ("" if is_running else "none")
    title = cut(_title(view, row), 17)
    room = 17 - max(0, len(shown) - 5)
    line = Text(f"{row.number:>2}  {cut(title, room):<{room}}{shown:>5}  ")
    if is_running:
        line.stylize("blue")
    drawn = Text(bar(dev, held, view.target if view.unit == "x" else None))
    drawn.highlight_regex(r"=", style="green" if row.result == KEPT else "dim")
    line.append_text(drawn)
    line.append(score(held).rjust(7) if held is not None else " " * 7)
    result = _progress(view, row) if is_running else row.result
    line.append(f"  {cut(inert(result), 19):<19}", style=_style(row, is_running=is_running))
    if width >= _WIDE:
        line.append(f"  {cut(inert(_against(row)), 36)}")
    return line


def _title(view: View, row: AttemptRow) -> str:
    before = sum(
        other.hypothesis_id == row.hypothesis_id and other.number < row.number
        for other in view.attempts
    )
    title = inert(row.title)
    if not before:
        return title
    again = f"{title}, again" if before == 1 else f"{title} ({before + 1})"
    return again if len(again) <= 17 else f"{cut(title, 13)} ({before + 1})"


def _style(row: AttemptRow, *, is_running: bool) -> str:
    if is_running:
        return "blue"
    if row.result == KEPT:
        return "green"
    return "red" if row.result.startswith(REFUTED) else ""


def _against(row: AttemptRow) -> str:
    if row.against is None or row.result == REJECTED:
        return row.reason
    return with_interval(row.against.value, row.against.low, row.against.high)


def _progress(view: View, row: AttemptRow) -> str:
    """Say what happens to an attempt now: `running, files`, `dev 5 of 12`, `waits, dev`."""
    for lane in view.lanes:
        if lane.state != "working":
            continue
        what = lane.doing.partition(": ")[2]
        if Role.EVALUATOR in lane.roles and lane.todo_id == row.todo_id:
            split, _, count = what.partition(", ")
            number = count.removeprefix("pair ").removeprefix("round ")
            name = {"dev": "dev", "holdout": "held-out"}.get(split)
            return f"{name} {number}" if name and number else row.result
        if lane.todo_id == row.todo_id and row.result == RUNNING and what:
            return f"{RUNNING}, {what}"
    return row.result


# Lanes -------------------------------------------------------------------------------------------


def _lane_lines(state: GoalState, view: View) -> list[Text]:
    place = {str(role): number for number, role in enumerate(_ORDER)}
    lanes = sorted(view.lanes, key=lambda lane: (place.get(lane.roles[0], 9), lane.agent_id))
    lines = []
    for lane in lanes:
        what = inert(_does(state, view, lane))
        line = Text(f"{inert(lane.agent_id):<13}{inert(lane.state):<11}{what}")
        if lane.state == "working":
            line.stylize("blue", 13, 13 + len("working"))
        lines.append(line)
    return lines


def _does(state: GoalState, view: View, lane: LaneRow) -> str:
    if lane.state == "working":
        return lane.doing.replace("holdout, ", "held-out, ")
    if lane.state != "waiting":
        return "" if lane.state == lane.doing else lane.doing
    known = {
        Reason.GOAL_PAUSED: "the end of the pause: labmates resume",
        Reason.BLOCKED_BY_GATE: f"{lane.waits_for or 'a gate'}, a person decides",
        Reason.BUDGET_EXHAUSTED: "nothing; the attempts are used",
        Reason.GOAL_DONE: "nothing; the goal is done",
        Reason.GOAL_ESCALATED: "nothing; the goal has escalated",
    }
    if lane.doing in known:
        return known[Reason(lane.doing)]
    if lane.doing and lane.doing not in set(Reason):
        return lane.doing
    first = lane.roles[0]
    return _waits(state, view, Role(first)) if first in _ORDER else "the next revision"


def _waits(state: GoalState, view: View, role: Role) -> str:
    running = next((row.number for row in view.attempts if row.result == RUNNING), None)
    unsettled = [row.number for row in view.attempts if row.result.startswith("waits")]
    if state.baseline is None and role in {Role.EXECUTOR, Role.EVALUATOR}:
        return "the baseline"
    match role:
        case Role.CURATOR:
            return "a signature to join, or a gate"
        case Role.PROPOSER:
            proposed = sum(not item.attempts for item in state.hypothesis_items())
            if proposed:
                what = "1 hypothesis" if proposed == 1 else f"{proposed} hypotheses"
                return f"{what} on the frontier, from the preset's queue"
            return "an item to retire; its queue is empty" if not state.source_open else "the queue"
        case Role.EXECUTOR:
            return f"the result of attempt {unsettled[-1]}" if unsettled else "the frontier"
        case Role.EVALUATOR:
            return f"evidence of attempt {running}" if running else "evidence of the next attempt"


def _last(view: View, *, attached: bool, said: str) -> Text:
    if view.gates:
        command = f"labmates gate show {view.gates[0].gate_id} --goal-id {view.goal_id}"
        return Text(f"Waits for you: {command}", style="bold yellow")
    if said:
        return Text(inert(said), style="bold yellow")
    return Text(_FOOT_ATTACHED if attached else _FOOT, style="dim")
