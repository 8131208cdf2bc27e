"""Refusals of the store as errors: each names the item, its state, what was asked, what is missing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contracts.errors import RefusedError, StoreForeignError
from contracts.store.decision import as_dict
from contracts.store.library import other_library


def no_permission(name: str, role: str, said: str) -> RefusedError:
    """Build the error for credentials that may not append where a call does."""
    message = f"these credentials may not {name}" + (f" as {role}" if role else "")
    return RefusedError(
        message,
        reason="no_permission",
        missing=f"the credentials of {role or 'whom the call is for'}",
        facts={"answer": said[:200]},
        mend=[["labmates", "store", "acl"]],
        hint="The store's URL names the user whose rights count (LABMATES_STORE_URL).",
    )


def refusal(
    name: str, answer: Sequence[Any], values: Mapping[str, object]
) -> RefusedError | StoreForeignError:
    """Turn a refusal of the store into its error; names item, state, transition, role, missing."""
    reason, missing = str(answer[1]), str(answer[2])
    more = as_dict(answer[3:])
    if reason in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[reason](missing, more)
    todo = str(values.get("todo") or "")
    agent = str(values.get("agent") or "")
    state = str(more.get("state") or "")
    facts: dict[str, str] = {}
    if state:
        hyp = more.get("hyp")
        parts = [todo, str(hyp) if hyp else "", state, f"version {more.get('version')}"]
        facts["item"] = ", ".join(part for part in parts if part)
    if values.get("to"):
        facts["asked"] = f"{state or '?'} -> {values['to']}, as {values.get('role') or 'operator'}"
    elif todo:
        facts["asked"] = f"{name}, as {values.get('role') or agent}"
    facts["missing"] = missing
    holder = more.get("claimed_by")
    if reason == "not_claimed":
        message = f"{todo} is claimed by {holder or 'nobody'}, not by {agent}"
    elif reason == "todo_unknown":
        message = f"there is no open todo {todo or missing!r}"
    elif reason == "agent_unknown":
        message = f"{missing or agent} is not on the roster"
    elif reason == "goal_unknown":
        message = f"there is no goal {missing!r} in this store"
    elif reason == "incarnation_live":
        message = f"another process is {agent} now"
        facts["process"] = f"{more.get('host')}, pid {more.get('pid')}"
    elif todo:
        message = f"{todo} does not allow {name}: {reason} (missing: {missing})"
    else:
        message = f"{name} was refused: {reason} (missing: {missing})"
    asks = bool(todo and agent) and not agent.startswith("operator:")
    mend = [["labmates", "quota", "should-run", "--agent-id", agent]] if asks else []
    if reason == "agent_unknown":
        mend = [["labmates", "agent", "list"]]
    return RefusedError(message, reason=reason, missing=missing, facts=facts, mend=mend)


def _foreign(key: str, _more: Mapping[str, object]) -> StoreForeignError:
    return StoreForeignError(
        "the store holds another program's keys under our names",
        facts={"key": key},
        mend=[["redis-cli", "type", key.split(" ", 1)[0]]],
        hint="Use a database or a server of its own (LABMATES_STORE_URL).",
    )


def _replaced(digest: str, _more: Mapping[str, object]) -> StoreForeignError:
    return other_library(digest)


def _duplicate(hypothesis_id: str, more: Mapping[str, object]) -> RefusedError:
    """Name the hypothesis that says the same, how it stands, and how it may be tried again."""
    todo, state, gate = (str(more.get(name) or "") for name in ("same", "same_state", "gate"))
    facts = {"item": f"{todo}, {hypothesis_id}, {state}"}
    mend = [["labmates", "graph"]]
    if gate:
        facts["waits for"] = f"{gate}: approved, it is tried again"
        mend = [["labmates", "gate", "show", gate]]
    return RefusedError(
        f"{hypothesis_id} says the same",
        reason="duplicate",
        missing=hypothesis_id,
        facts=facts,
        mend=mend,
    )


_OF_THEIR_OWN: Mapping[
    str, Callable[[str, Mapping[str, object]], RefusedError | StoreForeignError]
] = {"wrong_type": _foreign, "other_library": _replaced, "duplicate": _duplicate}
