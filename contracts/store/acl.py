"""Who may do what on the server: one ACL user a role, one for the operator, one that only reads.

Commands inside a function run with the rights of whoever calls it, and the keys that a call
declares are judged before it begins. So a role's user may call every function and append to its
own stream alone. It may change the derived state, which the functions keep, and which `doctor`
rebuilds from the streams; it deletes no key, configures nothing, and runs no code of its own.
"""

from contracts.words import Role, Stream

OPERATOR = "operator"
READER = "reader"
USERS = (*(str(role) for role in Role), OPERATOR, READER)
"""Whom `labmates store acl` makes users for."""

_DERIVED = (
    *("goal", "heads", "leases", "agents", "gates", "texts", "hyps"),
    *("item:*", "ready:*", "agent:*", "gate:*", "ops:*", "wake:*", "lane:*"),
)
_READS = (
    *("ping", "auth", "hello", "echo", "time", "select", "type", "exists", "scan", "fcall_ro"),
    *("hget", "hmget", "hgetall", "smembers", "zrange", "zrangebyscore", "zscore", "zcard"),
    *("xrange", "xrevrange", "xread", "xlen", "xinfo|stream", "llen", "lrange"),
    *("client|setname", "client|id", "acl|whoami", "info"),
)
_WRITES = (*("fcall", "xadd", "hset", "hdel", "zadd", "zrem", "sadd", "rpush", "ltrim", "blpop"),)


def user_name(who: str) -> str:
    """Name the server's user of a role, of the operator or of a reader."""
    return f"labmates-{who}"


def streams_of(who: str) -> tuple[str, ...]:
    """Give the streams that a user may append to; a goal is born in the curator's, by a person."""
    if who == OPERATOR:
        return Stream.OPERATOR, Stream.CURATOR
    return () if who == READER else (Stream(who),)


def rules_of(who: str) -> list[str]:
    """Give the rules of a user, without its password, for all goals of the store."""
    rules = ["resetkeys", "resetchannels", "-@all"]
    if who != READER:
        keys = [*_DERIVED, *(f"events:{stream}" for stream in streams_of(who))]
        rules += [f"%RW~{{*}}:{key}" for key in keys]
        rules += [f"+{name}" for name in _WRITES]
    if who == OPERATOR:
        rules.append("%RW~labmates:goals")
    rules += ["%R~{*}:*", "%R~labmates:goals", *(f"+{name}" for name in _READS)]
    return rules
