"""The client every warm process uses: redis-py without its own retries, and its errors as ours.

redis-py by default sends a command again when the reply was lost, so that a function runs twice.
Here nothing is sent again but by `with_retries`, whose callers carry an operation id.
"""

import inspect
import os
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
import tenacity
from redis.backoff import NoBackoff
from redis.retry import Retry

from contracts.errors import (
    PreconditionError,
    StoreError,
    StoreForeignError,
    StoreReadOnlyError,
    StoreUnreachableError,
    UsageError,
)
from contracts.store.embedded import ensure_server
from contracts.store.launch import OLDEST_VERSION
from contracts.store.wire import WireReplyError, reason_of, redact_url, unreachable

T = TypeVar("T")

BLOCK_LIMIT_S = 30.0
"""The longest a blocking command may wait; callers clamp to it."""

SOCKET_TIMEOUT_S = 45.0
"""Longer than any block: an idle queue must not look like a broken store."""

CONNECT_TIMEOUT_S = 5.0

_READ_ONLY = {
    "READONLY": "it is a read-only replica",
    "OOM": "its memory is full",
    "MISCONF": "it cannot write its files",
    "NOREPLICAS": "too few replicas are attached",
    "NOQUORUM": "too few replicas are attached",
}
_UNREACHABLE = {
    "LOADING": "it is still loading",
    "BUSY": "a script keeps it busy",
    "MASTERDOWN": "its primary is down",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "the cluster moves keys",
    "UNBLOCKED": "it changed its part",
}
_DENIED = {"NOAUTH", "WRONGPASS", "NOPERM"}


def store_url(url: str | None = None) -> str:
    """Give the address to use: the argument, else `LABMATES_STORE_URL`, else the embedded server.

    Starts the embedded server if it is the one and does not run.
    """
    return url or os.environ.get("LABMATES_STORE_URL") or ensure_server()


def connect(url: str | None = None, *, check: bool = True) -> redis.Redis:
    """Open a client and check the server once.

    Safe for threads. Blocking commands may wait up to `BLOCK_LIMIT_S`.

    Args:
        url: `redis://`, `rediss://` or `unix://`; None means the environment's, see `store_url`.
        check: False for a caller that judges the server itself; nothing is asked then.

    Raises:
        UsageError: The URL is no address.
        StoreUnreachableError: No answer.
        StoreForeignError: The server lacks functions (older than 7.0).
        PreconditionError: The server may evict keys.
        StoreError: It refuses the credentials.
    """
    address = store_url(url)
    options: dict[str, Any] = {
        "decode_responses": True,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 0,
    }
    if "legacy_responses" in inspect.signature(redis.Redis.__init__).parameters:
        options["legacy_responses"] = False
    try:
        client = redis.Redis.from_url(address, **options)
    except ValueError as error:
        message = f"this is no address of a store: {redact_url(address)}"
        hint = "Use redis://, rediss:// or unix:// (LABMATES_STORE_URL)."
        raise UsageError(message, hint=hint) from error
    try:
        if check:
            check_server(client, url=address)
    except BaseException:
        client.close()
        raise
    return client


def check_server(client: redis.Redis, *, url: str = "") -> None:
    """Refuse a server that cannot hold our records; one round trip.

    Credentials that may not ask (`INFO` refused) pass: the person's own are checked.

    Raises:
        StoreForeignError: It is older than 7.0.
        PreconditionError: Its eviction policy is not `noeviction`.
        StoreError: As `translate` says.
    """
    try:
        info = server_info(client)
    except redis.exceptions.NoPermissionError:
        return
    except redis.RedisError as error:
        raise translate(error, url=url) from error
    raise_if_unfit(info, url=url)
    if info.get("redis_mode") == "cluster" or str(info.get("cluster_enabled", "0")) == "1":
        _refuse_several_nodes(client, url)


def _refuse_several_nodes(client: redis.Redis, url: str) -> None:
    """Refuse a cluster in which another node may hold a goal; one with a single node will do."""
    try:
        answer = client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
    except redis.exceptions.NoPermissionError:
        return
    except redis.RedisError as error:
        raise translate(error, url=url) from error
    said = (
        answer
        if isinstance(answer, dict)
        else dict(line.split(":", 1) for line in str(answer).splitlines() if ":" in line)
    )
    size = int(said.get("cluster_size", 1))
    if size > 1:
        shown = redact_url(url) if url else "the store"
        message = f"{shown} is one of a cluster of {size} nodes; labmates speaks to one server"
        raise PreconditionError(
            message,
            facts={"store": shown, "needed": "a server, or a cluster of one node"},
            mend=[["unset", "LABMATES_STORE_URL"]],
            hint="A goal lives in one slot, so a server of its own holds any number of them.",
        )


def server_info(client: redis.Redis) -> dict[str, Any]:
    """Ask for `INFO`, parsed; raises redis-py's errors."""
    answer: dict[str, Any] = client.execute_command("INFO")  # type: ignore[no-untyped-call]
    return answer


def raise_if_unfit(info: dict[str, Any], *, url: str = "") -> None:
    """Judge a server by its `INFO`, as `check_server` does."""
    shown = redact_url(url) if url else "the store"
    version = str(info.get("redis_version", "0.0"))
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_VERSION:
        message = f"{shown} is version {version}; functions need Redis 7.0 or newer, or Valkey"
        raise StoreForeignError(
            message,
            facts={"store": shown, "version": version},
            mend=[["unset", "LABMATES_STORE_URL"]],
            hint="Upgrade that server, or use the embedded one.",
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        message = f"{shown} may evict our records: its maxmemory-policy is {policy}"
        raise PreconditionError(
            message,
            facts={"store": shown, "needed": "maxmemory-policy noeviction"},
            mend=[["redis-cli", "-u", shown, "config", "set", "maxmemory-policy", "noeviction"]],
            hint="Set it in the server's configuration file too.",
        )


def translate(error: Exception, *, url: str = "") -> StoreError:  # noqa: PLR0911 - one per class
    """Turn an exception of redis-py or of the wire into ours, by class or by reply code.

    Args:
        error: What was raised.
        url: The store's address for the message; its password is left out.
    """
    if isinstance(error, StoreError) and not isinstance(error, WireReplyError):
        return error
    shown = redact_url(url) if url else "the store"
    code, text = _code_of(error)
    facts = {"store": shown, "answer": f"{code} {text}".strip()}
    if code in _READ_ONLY:
        message = f"{shown} takes no writes: {_READ_ONLY[code]}"
        return StoreReadOnlyError(message, facts=facts, mend=[["labmates", "store", "status"]])
    if code in _DENIED:
        message = f"{shown} refuses these credentials"
        hint = "Check user and password in LABMATES_STORE_URL."
        return StoreError(message, facts=facts, hint=hint)
    if code in _UNREACHABLE:
        return unreachable(url, _UNREACHABLE[code])
    if code == "WRONGTYPE":
        message = f"{shown} holds another program's keys under our names"
        return StoreForeignError(message, facts=facts, mend=[["labmates", "store", "status"]])
    if code == "ERR" and text.startswith("unknown command"):
        message = f"{shown} lacks a command we need"
        return StoreForeignError(message, facts=facts, mend=[["labmates", "store", "status"]])
    if isinstance(error, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError):
        return unreachable(url, _reason(error))
    return StoreError(f"{shown} answered with an error: {facts['answer']}", facts=facts)


def _code_of(error: Exception) -> tuple[str, str]:
    """Give the reply code and the rest; redis-py cuts the codes it knows off its messages."""
    if isinstance(error, WireReplyError):
        return error.reply_code, error.reply_text
    text = str(error)
    exceptions = redis.exceptions
    by_class: list[tuple[type[Exception], str]] = [
        (exceptions.ReadOnlyError, "READONLY"),
        (exceptions.OutOfMemoryError, "OOM"),
        (exceptions.NoPermissionError, "NOPERM"),
        (exceptions.AuthorizationError, "NOPERM"),
        (exceptions.AuthenticationError, "NOAUTH"),
        (exceptions.BusyLoadingError, "LOADING"),
        (exceptions.MasterDownError, "MASTERDOWN"),
        (exceptions.ClusterDownError, "CLUSTERDOWN"),
        (exceptions.TryAgainError, "TRYAGAIN"),
    ]
    for kind, code in by_class:
        if isinstance(error, kind):
            return code, text
    match = re.match(r"([A-Z]{2,}) (.*)", text, re.DOTALL)
    if match and isinstance(error, exceptions.ResponseError):
        return match[1], match[2]
    return ("ERR" if isinstance(error, exceptions.ResponseError) else ""), text


def _reason(error: Exception) -> str:
    if isinstance(error, redis.exceptions.TimeoutError):
        return "timed out"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError):
        return reason_of(cause)
    return "connection lost"


def with_retries(fn: Callable[[], T], *, limit_s: float = 8.0, url: str = "") -> T:
    """Call `fn` until the store answers; only connection faults are tried again, by class.

    A call whose reply was lost may have run, so `fn` only reads or carries an operation id.

    Args:
        fn: What to do; may raise redis-py's errors, the wire's or ours.
        limit_s: Seconds after which no new try begins.
        url: As in `translate`.

    Raises:
        StoreUnreachableError: Still no answer; the message says how often and how long.
        StoreError: Any other fault of the store, at once.
    """

    def attempt() -> T:
        try:
            return fn()
        except (redis.RedisError, WireReplyError) as error:
            raise translate(error, url=url) from error

    begin = time.monotonic()
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StoreUnreachableError),
        wait=tenacity.wait_exponential(multiplier=0.05, max=2.0) + tenacity.wait_random(0, 0.05),
        stop=tenacity.stop_before_delay(limit_s),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except StoreUnreachableError as error:
        tries = int(retrying.statistics["attempt_number"])
        if tries == 1:
            raise
        seconds = time.monotonic() - begin
        shown = error.message.removesuffix(")")
        count = f"{tries} tries, {seconds:.0f} s" if seconds >= 1 else f"{tries} tries"
        raise StoreUnreachableError(
            f"{shown}, {count})" if shown != error.message else f"{shown} ({count})",
            facts=error.facts,
            mend=error.mend,
            hint=error.hint,
        ) from error


def wait_for_answer(
    client: redis.Redis,
    *,
    stop: Callable[[], bool],
    start: Callable[[], object] | None = None,
    url: str = "",
) -> bool:
    """Ask until the store answers or `stop` says so; True if it answered.

    Waits longer from try to try, at most 2 s, and never writes.

    Args:
        client: Whose server is asked.
        stop: Asked before each wait.
        start: Starts the server where it is ours to start; called before each try.
        url: As in `translate`.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StoreError),
        wait=tenacity.wait_exponential_jitter(initial=0.05, max=2.0, jitter=0.05),
        stop=lambda _state: stop(),
        reraise=True,
    )

    def ask() -> None:
        try:
            if start is not None:
                start()
            client.ping()
        except redis.RedisError as error:
            raise translate(error, url=url) from error

    try:
        retrying(ask)
    except StoreError:
        return False
    return True
