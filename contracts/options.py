"""Options that the commands of several rooms share: one name, one variable, one help each."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from contracts.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

goal_option = click.option(
    "--goal-id",
    envvar="LABMATES_GOAL_ID",
    default="",
    metavar="GOAL",
    help="The goal; the store's only one if left out.",
)
agent_option = click.option(
    "--agent-id", envvar="LABMATES_AGENT_ID", default="", metavar="AGENT", help="Who asks."
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


def require_agent(agent_id: str) -> str:
    """Give the agent's id, or say that it is missing."""
    if not agent_id:
        message = "no agent is named"
        raise UsageError(message, hint="Give --agent-id, or set LABMATES_AGENT_ID.")
    return agent_id
