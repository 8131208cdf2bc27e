"""The graph for eyes: Mermaid text, and the lineage as text for terminals."""

from contracts.replay_state import GoalState, ItemState
from contracts.text import cut, inert, score
from contracts.words import State
from projection.fold import Graph
from projection.rows import AttemptRow, attempt_row, ending

_SHAPES = {
    "contract": ("[[", "]]"),
    "hypothesis": ("([", "])"),
    "attempt": ("[", "]"),
    "evidence": ("[/", "/]"),
    "evaluation": ("{{", "}}"),
    "decision": ("((", "))"),
    "gate": ("{", "}"),
}
_DRAWN = ("contract", "hypothesis", "attempt", "evidence", "evaluation", "gate", "decision")


def mermaid(graph: Graph) -> str:
    """Draw the graph as a Mermaid flowchart; todos, artifacts and reviews are left out."""
    drawn = {node.id: node for node in graph.nodes if node.kind in _DRAWN}
    names = {node_id: f"n{position}" for position, node_id in enumerate(drawn)}
    lines = ["flowchart LR"]
    for node_id, node in drawn.items():
        left, right = _SHAPES[node.kind]
        lines.append(f'  {names[node_id]}{left}"{_quoted(f"{node_id}: {node.label}")}"{right}')
    lines.extend(
        f"  {names[edge.source]} -->|{edge.kind}| {names[edge.target]}"
        for edge in graph.edges
        if edge.source in names and edge.target in names
    )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Make text safe between Mermaid's quotes."""
    marks = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
    return "".join(marks.get(char, char) for char in inert(text))


def lineage(state: GoalState, *, width: int = 80) -> list[str]:
    """Write who refines whom, with each hypothesis' attempts and numbers below it."""
    children: dict[str | None, list[ItemState]] = {}
    for item in state.hypothesis_items():
        parent = item.hypothesis.parent_hypothesis_id if item.hypothesis else None
        known = parent if parent in state.hypotheses else None
        children.setdefault(known, []).append(item)
    commit = state.contract.base_commit[:7] if state.contract else "none"
    lines = [f"base {commit}"]
    for position, item in enumerate(children.get(None, [])):
        last = position == len(children[None]) - 1
        lines += _branch(state, item, children, "", last=last)
    return [cut(line, width) for line in lines]


def _branch(
    state: GoalState,
    item: ItemState,
    children: dict[str | None, list[ItemState]],
    indent: str,
    *,
    last: bool,
) -> list[str]:
    title = inert(item.hypothesis.title) if item.hypothesis else "none"
    end = f", {inert(ending(state, item))}" if item.state == State.RETIRED else ""
    lines = [f"{indent}{'`-' if last else '|-'} {item.hypothesis_id}  {title}  {item.state}{end}"]
    inner = f"{indent}{'   ' if last else '|  '}"
    below = children.get(item.hypothesis_id, [])
    bar = "|" if below else " "
    lines += [
        f"{inner}{bar}  {_numbers(attempt_row(state, state.attempts[number]))}"
        for number in item.attempts
    ]
    for position, child in enumerate(below):
        lines += _branch(state, child, children, inner, last=position == len(below) - 1)
    return lines


def _numbers(row: AttemptRow) -> str:
    dev = score(row.dev.value if row.dev else None)
    held = score(row.held.value if row.held else None)
    return f"#{row.number:<3} dev {dev:>7}  held {held:>7}  {inert(row.result)}"
