"""What the commands of this room share: the options, the goal they open."""

import sys
from dataclasses import dataclass
from typing import Any

import click

from contracts.canonical import canonical
from contracts.goals import open_reader
from contracts.options import (
    agent_option,
    goal_option,
    goal_options,
    json_option,
    require_agent,
    store_option,
)
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Writer
from contracts.text import inert
from roles.goal.goals import operator_name

__all__ = [
    "Opened",
    "agent_option",
    "goal_option",
    "goal_options",
    "json_option",
    "open_goal",
    "operator_name",
    "pick_goal",
    "print_document",
    "require_agent",
    "say",
    "store_option",
]


@dataclass(frozen=True, slots=True)
class Opened:
    """A goal of a store, with its two sides."""

    reader: Reader
    writer: Writer

    @property
    def goal_id(self) -> str:
        """Name the goal."""
        return self.reader.goal_id


def open_goal(goal_id: str = "", *, store: str = "") -> Opened:
    """Open a goal to write to it: `contracts.goals.open_reader`, the library, and the writer.

    Raises:
        UsageError: No such goal, or none was named and there are several.
        StoreError: The store is not there, is another program's, or takes no functions.
    """
    reader = open_reader(goal_id, store=store)
    ensure_library(reader.client)
    return Opened(reader, Writer(reader.client, reader.goal_id, url=reader.url))


def pick_goal(goal_id: str | None, store: str | None) -> str:
    """Give the goal that is meant: the named one, else the store's only one.

    Raises:
        UsageError: No such goal, or none was named and there are several.
    """
    reader = open_reader(goal_id or "", store=store or "")
    reader.client.close()
    return reader.goal_id


def print_document(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout, as every `--json` does."""
    sys.stdout.write(canonical(document) + "\n")


def say(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print what was done: the document with `--json`, else the text."""
    if as_json:
        print_document(document)
    else:
        click.echo(inert(text, lines=True))
