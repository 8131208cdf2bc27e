"""Every key of the store. All of a goal's keys carry its hash tag, so a goal lives in one slot.

Lifetimes: every key here is permanent until `goal remove`; there is no lock and no key with a TTL.
Kinds and contents are listed at the head of `lua/10_core.lua`.
"""

GOALS = "labmates:goals"
"""Set of goal ids, outside the hash tags; written after the goal exists."""


def prefix(goal_id: str) -> str:
    """Give the hash tag that starts every key of a goal."""
    return "{" + goal_id + "}"


def goal(goal_id: str) -> str:
    """Name the hash of contract numbers, counters and the champion."""
    return f"{prefix(goal_id)}:goal"


_ROLES = ("curator", "proposer", "executor", "evaluator")
_OPERATORS = ("approve", "gate_decide", "pause", "register", "todo_add")


def declared(
    name: str, goal_id: str, *, agent_id: str = "", todo_id: str = "", role: str = ""
) -> list[str]:
    """List the keys that a call of a function declares: goal, agent, item, streams appended to.

    The server judges them before the call begins. What only the function can know (the item it
    picks, ready sets, leases) carries the same hash tag. A call in no role that is named may
    append to the stream of any; a goal is born in the curator's.
    """
    found = [goal(goal_id), agent(goal_id, agent_id)]
    if todo_id:
        found.append(item(goal_id, todo_id))
    if name == "should_run":
        return found
    if name in _OPERATORS or (name == "gate_open" and not role):
        streams: tuple[str, ...] = ("operator",)
    elif name == "create":
        streams = ("curator",)
    else:
        streams = (role,) if role else _ROLES
    return found + [events(goal_id, stream) for stream in streams]


def item(goal_id: str, todo_id: str) -> str:
    """Name the hash of one todo."""
    return f"{prefix(goal_id)}:item:{todo_id}"


def ready(goal_id: str, name: str) -> str:
    """Name the sorted set of todos that are ready for one kind of step."""
    return f"{prefix(goal_id)}:ready:{name}"


def leases(goal_id: str) -> str:
    """Name the sorted set of lease ends."""
    return f"{prefix(goal_id)}:leases"


def agents(goal_id: str) -> str:
    """Name the set of agents of the roster."""
    return f"{prefix(goal_id)}:agents"


def agent(goal_id: str, agent_id: str) -> str:
    """Name the hash of one agent."""
    return f"{prefix(goal_id)}:agent:{agent_id}"


def operations(goal_id: str, caller: str) -> str:
    """Name the hash of the last operations of an agent or an operator, with their answers."""
    return f"{prefix(goal_id)}:ops:{caller}"


def lane(goal_id: str, agent_id: str) -> str:
    """Name the hash of what a lane does now (derived; `doctor` may drop it)."""
    return f"{prefix(goal_id)}:lane:{agent_id}"


def gate(goal_id: str, gate_id: str) -> str:
    """Name the hash of one operator gate."""
    return f"{prefix(goal_id)}:gate:{gate_id}"


def gates(goal_id: str) -> str:
    """Name the sorted set of open gates."""
    return f"{prefix(goal_id)}:gates"


def heads(goal_id: str) -> str:
    """Name the hash of the last position and digest of each stream."""
    return f"{prefix(goal_id)}:heads"


def events(goal_id: str, stream: str) -> str:
    """Name one append-only stream of events."""
    return f"{prefix(goal_id)}:events:{stream}"


def wake(goal_id: str, role: str) -> str:
    """Name the list of tokens that wake a waiting worker of a role."""
    return f"{prefix(goal_id)}:wake:{role}"
