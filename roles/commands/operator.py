"""The person's commands: pause and resume, gates."""

import sys
from typing import Any

import click

from contracts.canonical import canonical
from contracts.errors import RefusedError, UsageError
from contracts.goals import open_reader
from contracts.records import Gate, GateDecision
from contracts.text import duration, inert, table
from contracts.words import GateKind, Role
from roles.commands.gate_text import gate_document, gate_text
from roles.commands.shown_gate import (
    ShownGate,
    changed,
    overtaken,
    require_current,
    require_open,
    shown_gate,
)
from roles.goal.goals import operator_name
from roles.options import Opened, goal_options, open_goal, print_document, say

_AFTER = {
    "owner": "Next: the evaluator signs, then the curator.",
    "poison": "Next: the item may be taken again.",
    "disagreement": "Next: the first role signs once more.",
}
_FOLLOWS = {
    GateKind.OWNER: ("evaluator and curator sign", "it is retired with your reason as evidence"),
    GateKind.POISON: ("the item may be tried again", "it is retired with your reason as evidence"),
}
_ASKS = (Role.CURATOR, Role.EVALUATOR)
_ENDED = ("promoted", "retired", "closed")
_OPENABLE = ("owner", "merge", "publication", "poison")
_reason_option = click.option("--reason", default="", help="Why; it goes on record.")


# Pause -------------------------------------------------------------------------------------------


@click.command("pause")
@_reason_option
@goal_options
def pause(reason: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """No new claims from now on; what runs ends normally. `labmates resume` undoes it.

    \b
    Example:
      labmates pause --reason "the machine is needed"
    """  # noqa: D301 - click's mark for lines that stay as they are
    _pause(goal_id, store, value=True, reason=reason, as_json=as_json)


@click.command("resume")
@_reason_option
@goal_options
def resume(reason: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Take a pause back; lanes that wait go on at once.

    \b
    Example:
      labmates resume
    """  # noqa: D301 - click's mark for lines that stay as they are
    _pause(goal_id, store, value=False, reason=reason, as_json=as_json)


def _pause(goal_id: str, store: str, *, value: bool, reason: str, as_json: bool) -> None:
    opened = open_goal(goal_id, store=store)
    who = operator_name()
    note = f"{who.removeprefix('operator:')}: {reason}" if reason else f"by {who}"
    opened.writer.pause(
        operator=who, value=value, note=note, body=canonical({"note": reason} if reason else {})
    )
    word = "paused" if value else "resumed"
    more = "; what runs ends normally. Undo it: labmates resume" if value else ""
    document = {"goal_id": opened.goal_id, "paused": value, "note": reason}
    say(document, f"{opened.goal_id} is {word}{more}", as_json=as_json)


# Gates -------------------------------------------------------------------------------------------


@click.group("gate")
def gate() -> None:
    """What waits for a person: look at it and decide.

    \b
    Example:
      labmates gate list
    """  # noqa: D301 - click's mark for lines that stay as they are


@gate.command("list")
@goal_options
def gate_list(goal_id: str, store: str, *, as_json: bool) -> None:
    """List the gates that are open, oldest first.

    \b
    Example:
      labmates gate list
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    found = [shown_gate(reader, name) for name in reader.open_gates()]
    if as_json:
        gates = [gate_document(reader, each) for each in found]
        print_document({"goal_id": reader.goal_id, "gates": gates})
        return
    if not found:
        click.echo("no gate is open; nothing waits for you")
        return
    rows = [
        (
            each.gate_id,
            inert(each.fields.get("kind")),
            duration(each.open_for_s),
            inert(each.item["id"]),
            inert(each.body.get("question")),
        )
        for each in found
    ]
    click.echo("\n".join(table(("GATE", "KIND", "OPEN FOR", "TODO", "QUESTION"), rows)))
    click.echo(f"\nLook at it: labmates gate show {found[0].gate_id}")


@gate.command("show")
@click.argument("gate_id", metavar="ID")
@goal_options
def gate_show(gate_id: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Show the question, its numbers, what follows a yes and a no, and the hash of all that.

    \b
    Example:
      labmates gate show gate_0002
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    found = shown_gate(reader, gate_id)
    if as_json:
        print_document(gate_document(reader, found))
    else:
        sys.stdout.write(gate_text(reader, found))


@gate.command("approve")
@click.argument("gate_id", metavar="ID")
@click.argument("shown", metavar="HASH", required=False, default="")
@_reason_option
@goal_options
def gate_approve(
    gate_id: str, shown: str, reason: str, goal_id: str, store: str, *, as_json: bool
) -> None:
    """Say yes to exactly what HASH stands for; without it a terminal shows the gate and asks.

    \b
    Example:
      labmates gate approve gate_0002 07a21307
    """  # noqa: D301 - click's mark for lines that stay as they are
    opened = open_goal(goal_id, store=store)
    found = shown_gate(opened.reader, gate_id)
    if shown:
        require_current(opened.reader, found, shown)
    else:
        require_open(opened.reader, found)
        _ask(opened, found, as_json=as_json)
    _decide(opened, found, "approved", reason, as_json=as_json)


@gate.command("reject")
@click.argument("gate_id", metavar="ID")
@click.option("--reason", required=True, help="Why; it stays as evidence with the item.")
@goal_options
def gate_reject(gate_id: str, reason: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Say no; the item is retired with your reason as evidence.

    \b
    Example:
      labmates gate reject gate_0002 --reason "too much code for the gain"
    """  # noqa: D301 - click's mark for lines that stay as they are
    if not reason.strip():
        message = "a no needs a reason: it stays as evidence"
        raise UsageError(message)
    opened = open_goal(goal_id, store=store)
    found = shown_gate(opened.reader, gate_id)
    require_open(opened.reader, found)
    _decide(opened, found, "rejected", reason, as_json=as_json)


@gate.command("open")
@click.argument("todo_id", metavar="TODO")
@click.option("--kind", type=click.Choice(_OPENABLE), required=True, help="What is asked.")
@click.option("--reason", required=True, help="The question, in one sentence.")
@click.option("--agent-id", default="", help="A curator or evaluator that asks; else you do.")
@goal_options
def gate_open(
    todo_id: str, *, kind: str, reason: str, agent_id: str, goal_id: str, store: str, as_json: bool
) -> None:
    """Hold an item until a person decides; delivery of what was started stays possible.

    \b
    Example:
      labmates gate open todo_0012 --kind owner --reason "May this touch the public API?"
      labmates gate open todo_0012 --kind merge --reason "..." --agent-id curator-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    if not reason.strip():
        message = "a gate needs a question"
        raise UsageError(message)
    opened = open_goal(goal_id, store=store)
    yes, no = _FOLLOWS.get(
        GateKind(kind), ("the item goes on", "it is retired with your reason as evidence")
    )
    record = Gate(
        kind=GateKind(kind),
        question=reason,
        after_yes=yes,
        after_no=no,
        meanwhile="nobody can take the item; the other lanes go on",
    )
    body = canonical({"gate": record.to_json_dict()})
    state = opened.reader.item(todo_id).get("state", "")
    if not state:
        message = f"there is no todo {todo_id!r} in {opened.goal_id}"
        raise UsageError(message, mend=[["labmates", "status"]])
    if state in _ENDED:
        message = f"{todo_id} is {state} already; no gate can hold it"
        raise RefusedError(message, reason="todo_ended", missing="an item that has not ended")
    name = opened.writer.open_gate(
        operator=agent_id or operator_name(),
        role=_asking_role(opened, agent_id) if agent_id else "",
        todo_id=todo_id,
        kind=kind,
        body=body,
    )
    document = {"gate_id": name, "todo_id": todo_id, "kind": kind}
    text = f"{name} holds {todo_id} until it is decided: labmates gate show {name}"
    say(document, text, as_json=as_json)


def _asking_role(opened: Opened, agent_id: str) -> str:
    """Give the agent's role that may ask; the store refuses an agent that has none."""
    roles = opened.reader.agent(agent_id).get("roles", "").split(",")
    return next((role for role in _ASKS if role in roles), str(Role.CURATOR))


def _ask(opened: Opened, found: ShownGate, *, as_json: bool) -> None:
    """Show the gate on a terminal and wait for the person's word."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "the hash of what you decide on is missing"
        mend = [["labmates", "gate", "show", found.gate_id]]
        raise UsageError(message, mend=mend, hint="It is printed by `gate show`, and needed here.")
    sys.stdout.write(gate_text(opened.reader, found))
    click.confirm("Approve this?", abort=True)
    again = shown_gate(opened.reader, found.gate_id)
    if again.hash != found.hash:
        raise changed(again, found.hash, str(found.touched))


def _decide(opened: Opened, found: ShownGate, verdict: str, reason: str, *, as_json: bool) -> None:
    who = operator_name()
    record = GateDecision.model_validate(
        {"verdict": verdict, "shown": found.hash, "reason": reason}
    )
    try:
        revision = opened.writer.decide_gate(
            operator=who,
            gate_id=found.gate_id,
            verdict=verdict,
            touched=found.touched,
            body=canonical({"decision": record.to_json_dict()}),
        )
    except RefusedError as refused:
        raise overtaken(opened.reader, found, refused) from refused
    person = who.removeprefix("operator:")
    text = f"{found.gate_id} {verdict} by {person} at rev {revision}, bound to {found.hash}."
    more = _AFTER.get(found.fields.get("kind", ""), "")
    if verdict == "approved" and more:
        text += f"\n{more} Watch: labmates status --watch"
    document: dict[str, Any] = {
        "gate_id": found.gate_id,
        "verdict": verdict,
        "by": who,
        "revision": revision,
        "hash": found.hash,
    }
    say(document, text, as_json=as_json)
