"""A goal's keys as they are, to be laid beside each other."""

import json
from typing import Any

import redis

from contracts.records import Gate
from contracts.store import keys

_FREE = {"inc", "inc_host", "inc_pid", "inc_start", "inc_until", "op", "answer", "rank_reason"}
_FREE |= {"source_cursor", "store", "replay_of", "recoveries"}
"""What no event gives back (`contracts.expected`), and what scenarios do not tell the store."""


def dump(client: redis.Redis, goal_id: str) -> dict[str, Any]:
    """Give every key of a goal, its wake lists and lanes included, byte for byte."""
    names = sorted(map(str, client.scan_iter(match=f"{keys.prefix(goal_id)}:*")))
    return {name: client.execute_command("DUMP", name, NEVER_DECODE=True) for name in names}  # type: ignore[no-untyped-call]


def derived(client: redis.Redis, goal_id: str) -> dict[str, Any]:
    """Give what events give back, absent numbers and flags as nothing."""
    found: dict[str, Any] = {}
    for name in map(str, client.scan_iter(match=f"{keys.prefix(goal_id)}:*")):
        kind = client.type(name)
        if any(each in name for each in (":wake:", ":lane:", ":events:", ":ops:")):
            continue
        if kind == "hash":
            fields = {k: v for k, v in client.hgetall(name).items() if k not in _FREE}
            more: dict[str, Any] = {}
            if "rank" in fields:
                more["rank"] = float(fields["rank"])
            if "body" in fields:  # a gate, in whatever spelling
                gate = json.dumps(json.loads(fields["body"])["gate"])
                more["body"] = Gate.model_validate_json(gate)
            found[name] = {k: v for k, v in fields.items() if v != "0"} | more
        elif kind == "zset":
            scores: Any = client.zrange(name, 0, -1, withscores=True)
            found[name] = {k: None if name.endswith(":leases") else v for k, v in scores}
        else:
            found[name] = client.smembers(name)
    return {name: value for name, value in found.items() if value}


def drop_derived(client: redis.Redis, goal_id: str) -> None:
    """Delete every key of a goal but its streams."""
    for name in client.scan_iter(match=f"{keys.prefix(goal_id)}:*"):
        if ":events:" not in str(name):
            client.delete(name)


def unlike(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Give what differs between two of `derived`, field by field."""
    found = {}
    for name in first.keys() | second.keys():
        one, two = first.get(name) or {}, second.get(name) or {}
        if isinstance(one, set) or isinstance(two, set):
            if set(one) != set(two):
                found[name] = (one, two)
            continue
        for field in one.keys() | two.keys():
            if one.get(field) != two.get(field):
                found[f"{name} {field}"] = (one.get(field), two.get(field))
    return found
