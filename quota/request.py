"""What `quota should-run` and `quota claim` were asked, read from the command line without click."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from contracts.store import keys

if TYPE_CHECKING:
    from collections.abc import Sequence


# A named tuple, not a dataclass: importing dataclasses costs the cold path 6 ms.
class Request(NamedTuple):
    """One question: who asks, about what, and how the answer is wanted."""

    command: str
    agent_id: str
    goal_id: str
    role: str
    todo_id: str
    store: str
    named_goal: bool
    as_json: bool
    operation: str


_OPTIONS = {
    "--agent-id": ("agent_id", "LABMATES_AGENT_ID"),
    "--goal-id": ("goal_id", "LABMATES_GOAL_ID"),
    "--store": ("store", "LABMATES_STORE_URL"),
    "--role": ("role", ""),
    "--todo-id": ("todo_id", ""),
}


def parse(command: str, argv: Sequence[str]) -> Request | None:
    """Read the plain cases; None for everything that click must judge (help, faults, `--wait`)."""
    found: dict[str, str] = {}
    as_json = False
    words = iter(argv)
    for word in words:
        if word == "--json":
            as_json = True
            continue
        name, equals, value = word.partition("=")
        if name not in _OPTIONS or (name == "--todo-id" and command != "claim"):
            return None
        if not equals:
            value = next(words, "")
        if not value or value.startswith("-"):
            return None
        found[_OPTIONS[name][0]] = value
    named_goal = "goal_id" in found
    for field, variable in _OPTIONS.values():
        if variable and field not in found:
            found[field] = os.environ.get(variable, "")
    if not found["agent_id"] or found.get("role", "") not in _ROLES:
        return None
    return Request(
        command=command,
        agent_id=found["agent_id"],
        goal_id=found["goal_id"],
        role=found.get("role", "") or _role_of(found["store"]),
        todo_id=found.get("todo_id", ""),
        store=found["store"],
        named_goal=named_goal,
        as_json=as_json,
        operation=new_operation(),
    )


_ROLES = ("", "curator", "proposer", "executor", "evaluator")


def _role_of(url: str) -> str:
    """Give the role whose credentials an address names: they allow no other."""
    user = url.partition("://")[2].partition("@")[0].partition(":")[0]
    role = user.removeprefix("labmates-")
    return role if user != role and role in _ROLES else ""


def new_operation() -> str:
    """Make an operation id, as `contracts.ids.new_operation_id` does, without its imports."""
    import time  # noqa: PLC0415 - built in, and only here

    return f"{time.time_ns():x}-{os.urandom(6).hex()}"


def host_incarnation() -> str:
    """Name the incarnation of a person or agent that claims by hand on this host."""
    return f"cli:{os.uname().nodename}"


def declared_keys(request: Request, goal_id: str) -> list[str]:
    """Give the keys that the store's function declares."""
    name = "claim" if request.command == "claim" else "should_run"
    return keys.declared(
        name, goal_id, agent_id=request.agent_id, todo_id=request.todo_id, role=request.role
    )


def arguments(request: Request) -> list[str]:
    """Give the flat arguments of the store's function."""
    flat = ["agent", request.agent_id, "role", request.role]
    if request.command == "claim":
        flat += ["op", request.operation, "inc", host_incarnation(), "todo", request.todo_id]
    return flat
