"""What a server is set to, and the few settings that `doctor --fix` may change on our own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from contracts.store import keys
from contracts.store.connect import server_info, translate, with_retries
from contracts.store.library import source
from contracts.store.reader import Reader
from contracts.words import Stream


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What decides whether a server can lose records.

    Attributes:
        fsync: `appendfsync`; empty where these credentials may not ask.
        write_failed: The last write of the append-only file failed.
        memory_limit: Bytes; 0 for none.
    """

    name: str
    version: str
    policy: str
    append_only: bool
    fsync: str
    write_failed: bool
    memory: int
    memory_limit: int


def server_facts(client: redis.Redis, *, url: str = "") -> ServerFacts:
    """Ask a server what it is set to.

    Raises:
        StoreError: No answer, or these credentials may not ask.
    """
    info: Mapping[str, Any] = with_retries(lambda: server_info(client), limit_s=2.0, url=url)
    name = str(info.get("server_name", "redis"))
    config = _config(client, "appendfsync")
    return ServerFacts(
        name=name,
        version=str(info.get(f"{name}_version", info.get("redis_version", ""))),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        append_only=str(info.get("aof_enabled", "0")) == "1",
        fsync=config.get("appendfsync", ""),
        write_failed=str(info.get("aof_last_write_status", "ok")) != "ok",
        memory=int(info.get("used_memory", 0)),
        memory_limit=int(info.get("maxmemory", 0)),
    )


def _config(client: redis.Redis, name: str) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in client.config_get(name).items()}
    except redis.ResponseError:  # renamed or forbidden, as managed servers do
        return {}
    except redis.RedisError as error:
        raise translate(error) from error


def set_config(client: redis.Redis, name: str, value: str, *, url: str = "") -> None:
    """Change a setting of a running server.

    Raises:
        StoreError: The server refuses.
    """
    with_retries(lambda: client.config_set(name, value), url=url)


def library_state(client: redis.Redis, *, url: str = "") -> str:
    """Tell whether the server holds our function library: `ours`, `missing` or `other`."""
    try:
        found = client.fcall_ro("lm_version_v1", 0)
    except redis.ResponseError as error:
        if "not found" in str(error).lower():
            return "missing"
        raise translate(error, url=url) from error
    except redis.RedisError as error:
        raise translate(error, url=url) from error
    return "ours" if found == source()[1] else "other"


def put_goal_list(
    client: redis.Redis, *, add: Iterable[str], drop: Iterable[str], url: str = ""
) -> None:
    """Add goals to the list of goals and take others off it."""
    for goal_id in add:
        with_retries(lambda goal_id=goal_id: client.sadd(keys.GOALS, goal_id), url=url)  # type: ignore[misc]
    for goal_id in drop:
        with_retries(lambda goal_id=goal_id: client.srem(keys.GOALS, goal_id), url=url)  # type: ignore[misc]


def lost_entries(reader: Reader) -> dict[str, int]:
    """Count the entries that each stream once had and has no more."""
    found = {}
    for stream in Stream:
        key = keys.events(reader.goal_id, stream)

        def ask(key: str = key) -> Any:
            return reader.client.xinfo_stream(key)

        try:
            facts = ask()
        except redis.ResponseError:  # no such stream, or a key of another kind
            continue
        except redis.RedisError as error:
            raise translate(error, url=reader.url) from error
        lost = int(facts.get("entries-added", 0)) - int(facts.get("length", 0))
        if lost > 0:
            found[str(stream)] = lost
    return found


def drop_lane(reader: Reader, agent_id: str) -> None:
    """Forget what a lane said it does."""
    key = keys.lane(reader.goal_id, agent_id)
    with_retries(lambda: reader.client.delete(key), url=reader.url)
