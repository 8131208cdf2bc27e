"""`labmates status [--watch]` and `labmates roles`."""

import shutil
import sys
import time
from typing import Any

import click

from contracts.declared import DeclaredRole
from contracts.errors import LabmatesError
from contracts.goals import open_reader
from contracts.rolemap import INVARIANTS, ROLE_MAP
from contracts.store.reader import Reader
from contracts.text import NONE, facts, inert
from contracts.words import Stream
from roles.commands.status_text import event_line, status_text
from roles.commands.status_view import build
from roles.options import goal_options, print_document

_POLL_S = 0.5
_REDRAW_S = 1.0
_HOME_AND_CLEAR_BELOW = "\x1b[H\x1b[J"
_OVER = ("done", "escalate")


@click.command("status")
@click.option("--watch", is_flag=True, help="Stay, and show what changes; Ctrl-C ends it.")
@goal_options
def status(goal_id: str, store: str, *, watch: bool, as_json: bool) -> int:
    """Phase, lanes, frontier, budget, gates that wait for you, best result.

    Exits 0 in every state of a goal, 2 where there is no goal.

    \b
    Examples:
      labmates status
      labmates status --watch
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    if watch and not as_json:
        try:
            return _redraw(reader) if sys.stdout.isatty() else _follow(reader)
        except KeyboardInterrupt:
            return 0
    document = build(reader)
    if as_json:
        print_document(document)
    else:
        sys.stdout.write(status_text(document, width=_width()))
    return 0


def _width() -> int:
    """Give the terminal's width between 80 and 120; 80 where there is none."""
    if not sys.stdout.isatty():
        return 80
    return min(120, max(80, shutil.get_terminal_size().columns))


def _redraw(reader: Reader) -> int:
    while True:
        text = status_text(build(reader), width=_width())
        height = shutil.get_terminal_size().lines
        shown = "\n".join(text.splitlines()[: max(1, height - 1)])
        sys.stdout.write(f"{_HOME_AND_CLEAR_BELOW}{shown}\n")
        sys.stdout.flush()
        time.sleep(_REDRAW_S)


def _follow(reader: Reader) -> int:
    """Print one line an event, from now on, until the goal is over and every lane is down."""
    after: dict[Stream, str] = {}
    for stream in Stream:
        entries = reader.entries(stream)
        if entries:
            after[stream] = entries[-1][0]
    sys.stdout.write(status_text(build(reader)))
    while True:
        sys.stdout.flush()
        fresh: list[dict[str, str]] = []
        for stream in Stream:
            entries = reader.entries(stream, after=after.get(stream))
            fresh += [fields for _, fields in entries]
            if entries:
                after[stream] = entries[-1][0]
        for fields in sorted(fresh, key=lambda each: int(each.get("rev", "0"))):
            sys.stdout.write(event_line(fields) + "\n")
        if not fresh and _is_over(reader):
            return 0
        time.sleep(_POLL_S)


def _is_over(reader: Reader) -> bool:
    document: dict[str, Any] = build(reader)
    down = all(lane["state"] == "down" for lane in document["lanes"])
    return document["phase"] in _OVER and down


@click.command("roles")
@goal_options
def roles(goal_id: str, store: str, *, as_json: bool) -> None:
    """Show the role map: what each role is for, may write, and must not do.

    With a goal in the store, the roles that its roster declares beyond the four, too.

    \b
    Example:
      labmates roles
    """  # noqa: D301 - click's mark for lines that stay as they are
    declared = _declared(goal_id, store)
    if as_json:
        cards = [card._asdict() | {"capability": card.capability} for card in ROLE_MAP]
        own = [{"agent_id": name, **card.to_json_dict()} for name, card in declared.items()]
        print_document({"roles": cards, "declared": own, "invariants": INVARIANTS})
        return
    lines: list[str] = []
    for card in ROLE_MAP:
        lines.append(f"{card.role}  ({card.title}; capability {card.capability})")
        lines += facts(
            [("job", card.primary_job), ("may write", card.may_write), ("must not", card.must_not)]
        )
        lines.append("")
    for name, beyond in declared.items():
        lines.append(
            f"{beyond.name}  (declared by {name}; capability {inert(beyond.capability_token)})"
        )
        reads = f"no event; it reads {', '.join(beyond.reads)}"
        must_not = "; ".join(map(inert, beyond.must_not)) or NONE
        lines += facts(
            [("job", inert(beyond.primary_job)), ("may write", reads), ("must not", must_not)]
        )
        lines.append("")
    lines.append("No role is above another:")
    lines += [f"  {text}" for text in INVARIANTS]
    click.echo("\n".join(lines))


def _declared(goal_id: str, store: str) -> dict[str, DeclaredRole]:
    """Give agent -> the role it declares; nothing without a goal, unless one was named."""
    try:
        reader = open_reader(goal_id, store=store)
    except LabmatesError:
        if goal_id or store:
            raise
        return {}
    found = {}
    for name in reader.agent_ids():
        if words := reader.agent(name).get("declared"):
            found[name] = DeclaredRole.model_validate_json(words)
    return found
