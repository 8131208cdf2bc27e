"""Which goal a command is about, and its reader; no click, no writer."""

import os
from typing import TYPE_CHECKING

from contracts.errors import UsageError
from contracts.store.connect import connect, store_url
from contracts.store.reader import Reader, goal_ids

if TYPE_CHECKING:
    from collections.abc import Sequence


def choose_goal(known: "Sequence[str]", wanted: str = "") -> str:
    """Choose the goal: the wanted one, else the only one.

    Raises:
        UsageError: None or several, or no such goal; the message lists those there are.
    """
    listed = ", ".join(sorted(known)) or "none"
    if wanted:
        if wanted in known:
            return wanted
        message = f"there is no goal {wanted!r} in this store"
        raise UsageError(message, facts={"goals": listed}, mend=_mend(known, "labmates", "status"))
    if len(known) == 1:
        return known[0]
    if not known:
        message = "there is no goal in this store yet"
        mend = [["labmates", "demo", "--execute", "--headless"], ["labmates", "plan"]]
        raise UsageError(message, mend=mend)
    message = "the store holds several goals; say which one"
    raise UsageError(message, facts={"goals": listed}, mend=_mend(known, "labmates", "status"))


def _mend(known: "Sequence[str]", *command: str) -> list[list[str]]:
    return [[*command, "--goal-id", goal] for goal in sorted(known)[:3]]


def open_reader(goal_id: str = "", *, store: str = "") -> Reader:
    """Connect, choose the goal, and give its reader (`.client`, `.goal_id`, `.url` are there).

    Args:
        goal_id: The goal; empty means `LABMATES_GOAL_ID`, else the store's only one.
        store: Its address; empty means `LABMATES_STORE_URL`, else the embedded server.

    Raises:
        UsageError: As `choose_goal`.
        StoreError: As `contracts.store.connect.connect`.
    """
    url = store_url(store or None)
    client = connect(url)
    try:
        wanted = goal_id or os.environ.get("LABMATES_GOAL_ID", "")
        reader = Reader(client, wanted, url=url)
        # A goal that is not in the set is asked for by name: the set is written after the goal.
        if not wanted or not reader.goal():
            reader = Reader(client, choose_goal(goal_ids(client, url=url), wanted), url=url)
    except BaseException:
        client.close()
        raise
    return reader
