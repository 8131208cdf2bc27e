"""ACL users on a server: making them, and clients that act as them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import redis

from contracts.store.acl import rules_of, user_name
from contracts.store.connect import connect, translate
from contracts.store.credentials import credential_url


def make_users(client: "redis.Redis", passwords: Mapping[str, str], *, url: str = "") -> bool:
    """Make the users on a server, or put their rules right; True if it will keep them.

    A server without an ACL file forgets them when it ends.

    Args:
        client: With rights to make users.
        passwords: Of each user, by role, `operator` or `reader`.
        url: The store's address for messages.

    Raises:
        StoreError: These credentials may not make users, or the store does not answer.
    """
    try:
        for who, password in passwords.items():
            words = ["reset", "on", f">{password}", *rules_of(who)]
            # redis-py's own builder of rules knows neither selectors nor `%RW~`
            client.execute_command("ACL", "SETUSER", user_name(who), *words)  # type: ignore[no-untyped-call]
        return _saved(client)
    except redis.RedisError as error:
        raise translate(error, url=url) from error


def _saved(client: "redis.Redis") -> bool:
    """Save the users; False where the server has no file for them."""
    try:
        client.acl_save()
    except redis.ResponseError as error:
        if "not configured" not in str(error):
            raise
        return False
    return True


def role_clients(
    store: str, address: str, roles: Iterable[str], home: Path
) -> dict[str, "redis.Redis"]:
    """Open a client a role with the credentials kept here; empty where one of them has none.

    Raises:
        StoreError: The server refuses the credentials, or does not answer.
    """
    clients: dict[str, redis.Redis] = {}
    for role in roles:
        found = credential_url(store, address, role, home)
        if found is None:
            return {}
        clients[role] = connect(found)
    return clients
