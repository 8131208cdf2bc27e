"""The same questions over redis-py: starts the embedded server, loads the library, retries, waits."""

import time
from collections.abc import Callable
from typing import Any

from contracts.errors import StoreError
from contracts.goals import open_reader
from contracts.store import keys
from contracts.store.connect import BLOCK_LIMIT_S, translate, with_retries
from contracts.store.decision import as_dict
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.refusals import refusal
from quota.document import build
from quota.extra import extra_for
from quota.request import Request, arguments, declared_keys

_ROLES = ("curator", "proposer", "executor", "evaluator")


def answer(request: Request, *, wait_s: float = 0.0) -> dict[str, Any]:
    """Ask once, or with `wait_s` until the answer is yes, can no longer become one, or time is over.

    Raises:
        UsageError: No such goal.
        RefusedError: The store refused a claim.
        StoreError: The store cannot be reached, or is another program's.
    """
    reader = open_reader(request.goal_id, store=request.store)
    try:
        _load_library(reader, request)
        until = time.monotonic() + wait_s
        while True:
            document = _ask(reader, request)
            left = until - time.monotonic()
            if document["should_run"] or document["wait"] is None or left <= 0:
                return document
            _sleep(reader, document, left)
    finally:
        reader.client.close()


def _load_library(reader: Reader, request: Request) -> None:
    """Load the functions where they are missing; one that may only read needs them loaded."""
    try:
        ensure_library(reader.client)
    except StoreError:
        # A reader without the right to load asks all the same; the server then says what it lacks.
        if request.command == "claim":
            raise


def _ask(reader: Reader, request: Request) -> dict[str, Any]:
    name = "lm_claim_v1" if request.command == "claim" else "lm_should_run_v1"
    call = reader.client.fcall if request.command == "claim" else reader.client.fcall_ro
    flat, declared = arguments(request), declared_keys(request, reader.goal_id)
    found: Any = with_retries(lambda: call(name, len(declared), *declared, *flat), url=reader.url)
    if isinstance(found, list) and found and found[0] == "refused":
        values = {"agent": request.agent_id, "todo": request.todo_id}
        raise refusal(request.command, found, values)
    reply = as_dict(found)
    return build(
        reply,
        goal_id=reader.goal_id,
        agent_id=request.agent_id,
        extra=extra_for(_sender(reader), reader.goal_id, reply),
        named_goal=request.named_goal,
        claimed=request.command == "claim",
    )


def _sender(reader: Reader) -> Callable[..., object]:
    """Give a function that sends one reading command and gives the plain reply."""

    def ask(*words: str | int) -> object:
        def send() -> object:
            connection = reader.client.connection_pool.get_connection()
            try:
                connection.send_command(*words)  # type: ignore[no-untyped-call]  # redis-py's
                return connection.read_response()
            finally:
                reader.client.connection_pool.release(connection)

        return with_retries(send, url=reader.url)

    return ask


def _sleep(reader: Reader, document: dict[str, Any], left_s: float) -> None:
    """Wait for a token of the role's wake list; a lost one costs one wait and nothing else."""
    wait = document["wait"]
    bound = min(left_s, float(wait["poll_after_s"]), BLOCK_LIMIT_S)
    if wait["until"]:
        from datetime import UTC, datetime  # noqa: PLC0415 - only here

        end = datetime.fromisoformat(wait["until"]).astimezone(UTC).timestamp()
        bound = min(bound, max(0.05, end - reader.now_ms() / 1000 + 0.01))
    roles = [document["role"]] if document["role"] else list(_ROLES)
    lists = [keys.wake(reader.goal_id, role) for role in roles]
    try:
        reader.client.blpop(lists, timeout=max(0.05, bound))
    except Exception as error:
        raise translate(error, url=reader.url) from error
