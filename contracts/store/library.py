"""The function library: its head is rendered from the transition table, its body lies in `lua/`.

Each function's name carries its version and its meaning never changes in place. The library is
loaded where it is missing and never replaced silently: a server that holds another one is refused,
and `labmates store upgrade` is the explicit step.
"""

from functools import cache
from importlib.resources import files

import redis

from contracts.canonical import sha256_hex
from contracts.errors import StoreForeignError
from contracts.store.connect import translate
from contracts.transitions import lua_table

NAME = "labmates_v1"


@cache
def source() -> tuple[str, str]:
    """Give the whole library and its digest (SHA-256 of everything but the digest's own line)."""
    folder = files("contracts.store").joinpath("lua")
    parts = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".lua")),
        key=lambda entry: entry.name,
    )
    body = lua_table() + "".join(part.read_text(encoding="utf-8") for part in parts)
    digest = sha256_hex(body)
    return f'#!lua name={NAME}\nlocal LIBRARY_DIGEST = "{digest}"\n{body}', digest


def ensure_library(client: "redis.Redis", *, replace: bool = False) -> None:
    """Load the library where it is missing; with `replace`, put ours in place of another.

    Raises:
        StoreForeignError: The server holds a different library under our name.
        StoreError: The server refuses to load functions.
    """
    code, digest = source()
    try:
        found = client.fcall_ro("lm_version_v1", 0)
    except redis.ResponseError as error:
        if "not found" not in str(error).lower():
            raise translate(error) from error
        found = None
    except redis.RedisError as error:
        raise translate(error) from error
    if found == digest:
        return
    if found is not None and not replace:
        raise other_library(str(found))
    try:
        client.function_load(code, replace=replace or found is None)
    except redis.RedisError as error:
        raise translate(error) from error


def other_library(there: str) -> StoreForeignError:
    """Build the error for a server whose library has the digest `there`, not ours."""
    return StoreForeignError(
        "the store holds another version of the labmates function library",
        facts={"here": source()[1][:12], "there": there[:12]},
        mend=[["labmates", "store", "upgrade"]],
        hint="stop all workers first; an older labmates cannot use the store afterwards",
    )
