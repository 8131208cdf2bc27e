"""`labmates todo`: the shared todos, and a person's ideas for the proposer."""

import sys
from typing import Any

import click
from pydantic import ValidationError

from contracts.canonical import canonical, text_digest
from contracts.errors import RefusedError, UsageError
from contracts.events import TodoAdded, parse_entry
from contracts.goals import open_reader
from contracts.records import TEXT_LIMIT, Idea
from contracts.store.reader import Reader
from contracts.text import facts, inert, table
from contracts.words import Stream
from roles.drivers.base import DRIVERS
from roles.goal.goals import contract_of, operator_name
from roles.goal.sources import short_title
from roles.options import goal_options, open_goal, print_document, say

_ENDED = ("promoted", "retired", "closed")
_NEED_CHANGE = ("files", "patch")


@click.group("todo")
def todo() -> None:
    """The shared todos: look at them, add an idea.

    \b
    Example:
      labmates todo list
    """  # noqa: D301 - click's mark for lines that stay as they are


@todo.command("add")
@click.argument("text")
@click.option("--title", default="", help="A few words; the beginning of the text if left out.")
@click.option("--family", default="unnamed", show_default=True, help="Its mechanism family.")
@click.option("--driver", default="", help="Who makes the change; the contract's if left out.")
@click.option("--change", default="", help="Folder of the prepared change, for files and patch.")
@goal_options
def todo_add(
    text: str,
    *,
    title: str,
    family: str,
    driver: str,
    change: str,
    goal_id: str,
    store: str,
    as_json: bool,
) -> None:
    """Add an idea; the proposer turns it into a hypothesis of source `person`.

    A goal that has escalated for want of ideas goes on. The same text twice is told (exit code 1),
    not added.

    \b
    Example:
      labmates todo add "Sort only the first k distances" --change select
    """  # noqa: D301 - click's mark for lines that stay as they are
    if not text.strip():
        message = "an idea needs words"
        raise UsageError(message)
    if len(text) > TEXT_LIMIT:
        message = f"an idea has at most {TEXT_LIMIT} characters, this one has {len(text)}"
        raise UsageError(message)
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "the text is no UTF-8"
        raise UsageError(message) from None
    opened = open_goal(goal_id, store=store)
    used = driver or contract_of(opened.reader).strategy.driver
    if used not in DRIVERS:
        message = f"{used!r} is no driver"
        raise UsageError(message, facts={"drivers": ", ".join(sorted(DRIVERS))})
    if used in _NEED_CHANGE and not change:
        message = f"the driver {used!r} needs a prepared change"
        raise UsageError(message, hint="Give --change FOLDER, or another --driver.")
    if change.startswith("/") or ".." in change.split("/"):
        message = f"{change!r} is no folder of the prepared changes"
        raise UsageError(message, hint="Give the name of one, as the queue does.")
    try:
        idea = Idea(
            title=(title or short_title(text))[:48],
            mechanism_family=family,
            driver=used,
            change_ref=change or None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{first['loc'][0]} cannot be taken: {first['msg']}"
        raise UsageError(message) from None
    body = {"kind": "idea", "text": text, "idea": idea.to_json_dict()}
    try:
        name = opened.writer.add_todo(
            operator=operator_name(),
            text_digest=text_digest(text),
            title=idea.title,
            body=canonical(body),
        )
    except RefusedError as refused:
        if refused.reason != "duplicate":
            raise
        document: dict[str, Any] = {"added": False, "duplicate_of": refused.missing}
        say(document, f"not added: {refused.missing} says the same", as_json=as_json)
        sys.exit(1)
    told = f"{name} is added; the proposer takes it up. Watch: labmates todo show {name}"
    say({"added": True, "todo_id": name, "title": idea.title}, told, as_json=as_json)


@todo.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that have ended, too.")
@goal_options
def todo_list(goal_id: str, store: str, *, everything: bool, as_json: bool) -> None:
    """List the todos that have not ended.

    \b
    Example:
      labmates todo list --all
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    found = [_document(reader, name) for name in _names(reader)]
    shown = [each for each in found if everything or each["state"] not in _ENDED]
    if as_json:
        print_document({"goal_id": reader.goal_id, "todos": shown})
        return
    if not shown:
        click.echo("no todo is open; labmates todo list --all has those that ended")
        return
    rows = [
        tuple(inert(each[name]) for name in ("todo_id", "kind", "state", "claimed_by", "title"))
        for each in shown
    ]
    click.echo("\n".join(table(("TODO", "KIND", "STATE", "CLAIMED BY", "TITLE"), rows)))


@todo.command("show")
@click.argument("todo_id", metavar="TODO")
@goal_options
def todo_show(todo_id: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Show one todo.

    \b
    Example:
      labmates todo show todo_0003
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    if not reader.item(todo_id).get("state"):
        message = f"there is no todo {todo_id!r} in {reader.goal_id}"
        raise UsageError(message, mend=[["labmates", "todo", "list", "--all"]])
    found = _document(reader, todo_id) | {"text": _text(reader, todo_id)}
    if as_json:
        print_document(found)
        return
    pairs = [(name.replace("_", " "), inert(value)) for name, value in found.items() if value]
    click.echo("\n".join(facts(pairs)))


def _names(reader: Reader) -> list[str]:
    """Name every todo: the goal's own, ideas and successors by their numbers, then hypotheses."""
    goal = reader.require_goal()
    names = ["todo_contract", "todo_baseline", "todo_propose"]
    for kind in ("idea", "successor"):
        count = int(goal.get(f"{kind}_count") or 0)
        names += [f"todo_{kind}_{number:04d}" for number in range(1, count + 1)]
    count = int(goal.get("hypothesis_count") or 0)
    return [*names, *(f"todo_{number:04d}" for number in range(1, count + 1))]


def _document(reader: Reader, name: str) -> dict[str, Any]:
    item = reader.item(name)
    return {
        "todo_id": name,
        "kind": item.get("kind", ""),
        "state": item.get("state", ""),
        "title": item.get("title") or None,
        "hypothesis_id": item.get("hyp") or None,
        "claimed_by": item.get("claimed_by") or None,
        "gate": item.get("gate") or None,
        "version": int(item.get("version") or 0),
    }


def _text(reader: Reader, name: str) -> str | None:
    """Give the words of an idea, as the person wrote them."""
    for entry_id, fields in reader.entries(Stream.OPERATOR):
        if fields.get("todo") == name and fields.get("type") == "todo_added":
            try:
                event = parse_entry(reader.goal_id, Stream.OPERATOR, entry_id, fields)
            except (ValueError, KeyError):
                return None
            return event.text or None if isinstance(event, TodoAdded) else None
    return None
