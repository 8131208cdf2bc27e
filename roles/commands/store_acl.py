"""`labmates store acl`: ACL users for the roles, the operator and readers, and their passwords."""

import json
import os

import click

from contracts.store.acl import USERS, streams_of, user_name
from contracts.store.connect import connect, store_url
from contracts.store.credentials import folder_of, passwords_of, url_of
from contracts.store.users import make_users
from contracts.store.wire import redact_url


@click.command("acl")
@click.option(
    "--store", "url", envvar="LABMATES_STORE_URL", default="", metavar="URL", help="The store."
)
@click.option("--show", is_flag=True, help="Print the passwords too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def acl(url: str, *, show: bool, as_json: bool) -> None:
    """Make the users of the roles on the server, or put their rules right.

    Each role's user appends to its own stream, reads all, deletes nothing and configures nothing.
    Lanes on this machine use the credentials from now on; a lane elsewhere gets the file of its
    role, which is the store's address (LABMATES_STORE_URL). The embedded server has the users
    from its start.

    \b
    Example:
      labmates store acl
    """  # noqa: D301 - click's mark for lines that stay as they are
    address = store_url(url)
    folder = folder_of(url)
    passwords = passwords_of(folder)
    with connect(address) as client:
        lasting = make_users(client, passwords, url=address)
    for who, password in passwords.items():  # what a lane elsewhere is given, ready for its URL
        (folder / f"{user_name(who)}.url").touch(mode=0o600)
        text = url_of(address, who, password) + "\n"
        (folder / f"{user_name(who)}.url").write_text(text, encoding="utf-8")
    users: list[dict[str, object]] = [
        {
            "user": user_name(who),
            "appends_to": list(streams_of(who)),
            "file": os.fspath(folder / f"{user_name(who)}.url"),
            "url": url_of(address, who, passwords[who]) if show else None,
        }
        for who in USERS
    ]
    if as_json:
        document = {"store": redact_url(address), "lasting": lasting, "users": users}
        click.echo(json.dumps(document))
        return
    _print(users, address=address, lasting=lasting)


def _print(users: list[dict[str, object]], *, address: str, lasting: bool) -> None:
    width = max(len(str(user["user"])) for user in users) + 2
    for user in users:
        streams = user["appends_to"]
        appends = ", ".join(map(str, streams)) if isinstance(streams, list) else ""
        click.echo(f"{user['user']:<{width}}appends to {appends or 'nothing'}")
        click.echo(f"{'':<{width}}{user['url'] or user['file']}")
    if not lasting:
        click.echo(
            f"\n{redact_url(address)} has no ACL file: the users are gone when it ends.\n"
            "Set `aclfile` in its configuration and run this again."
        )
    click.echo('\nA lane elsewhere: export LABMATES_STORE_URL="$(cat FILE)"')
