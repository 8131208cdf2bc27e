"""Options that many commands share, and the goal they open."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from contracts.canonical import canonical
from contracts.errors import UsageError
from contracts.goals import open_reader
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Writer

F = TypeVar("F", bound=Callable[..., Any])

goal_option = click.option(
    "--goal-id",
    envvar="LABMATES_GOAL_ID",
    default="",
    metavar="GOAL",
    help="The goal; the store's only one if left out.",
)
agent_option = click.option(
    "--agent-id",
    envvar="LABMATES_AGENT_ID",
    default="",
    metavar="AGENT",
    help="Who asks.",
)
store_option = click.option(
    "--store",
    envvar="LABMATES_STORE_URL",
    default="",
    metavar="URL",
    help="redis://, rediss:// or unix://; the embedded server if left out.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def goal_options(command: F) -> F:
    """Add `--goal-id`, `--store` and `--json` (parameters `goal_id`, `store`, `as_json`)."""
    return goal_option(store_option(json_option(command)))


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


def require_agent(agent_id: str) -> str:
    """Give the agent's id, or say that it is missing."""
    if not agent_id:
        message = "no agent is named"
        raise UsageError(message, hint="Give --agent-id, or set LABMATES_AGENT_ID.")
    return agent_id


def operator_name() -> str:
    """Give `operator:` and the name of the person at this terminal, fit for an id."""
    import getpass  # noqa: PLC0415 - only operators' commands need it

    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    safe = "".join(char if char.isascii() and char.isalnum() else "-" for char in name.lower())
    return f"operator:{safe.strip('-')[:40] or 'unknown'}"


def print_document(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout, as every `--json` does."""
    sys.stdout.write(canonical(document) + "\n")
