"""`labmates store start | stop | status | upgrade`; backups are in `store_backup`."""

import json
import os

import click

from contracts.errors import UsageError
from contracts.store.embedded import ServerStatus, ensure_server, server_status, stop_server
from contracts.store.wire import redact_url
from roles.commands.store_acl import acl
from roles.commands.store_backup import backup, copy, restore

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("store")
def store() -> None:
    """Start, stop and look at the store's server; back up, restore and copy goals.

    \b
    Example:
      labmates store status
    """  # noqa: D301 - click's mark for lines that stay as they are


for _command in (acl, backup, restore, copy):
    store.add_command(_command)


@store.command("start")
@click.option(
    "--appendfsync",
    type=click.Choice(["always", "everysec"]),
    envvar="LABMATES_APPENDFSYNC",
    help="When writes reach the disk; `always` unless said otherwise.",
)
@_json_option
def start(appendfsync: str | None, *, as_json: bool) -> None:
    """Start the embedded server, or find the one that runs.

    \b
    Example:
      labmates store start --appendfsync everysec
    """  # noqa: D301 - click's mark for lines that stay as they are
    _require_embedded()
    ensure_server(appendfsync=appendfsync)
    _show(server_status(), as_json=as_json)


@store.command("upgrade")
@click.option(
    "--store", "url", envvar="LABMATES_STORE_URL", default="", metavar="URL", help="The store."
)
def upgrade(url: str) -> None:
    """Put this version's function library in place of another one in the store.

    End all lanes first: an older labmates cannot use the store afterwards.

    \b
    Example:
      labmates store upgrade
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.store.connect import connect
    from contracts.store.library import ensure_library, source

    client = connect(url or None)
    try:
        ensure_library(client, replace=True)
    finally:
        client.close()
    click.echo(f"library {source()[1][:12]}")


@store.command("stop")
@_json_option
def stop(*, as_json: bool) -> None:
    """Stop the embedded server; exits 0 too when none runs. Its data stays.

    \b
    Example:
      labmates store stop
    """  # noqa: D301 - click's mark for lines that stay as they are
    _require_embedded()
    stopped = stop_server()
    if as_json:
        click.echo(json.dumps({"stopped": stopped}))
    else:
        click.echo("stopped" if stopped else "no server was running")


@store.command("status")
@_json_option
def status(*, as_json: bool) -> None:
    """Say which store is used and whether it answers; starts nothing.

    \b
    Example:
      labmates store status --json
    """  # noqa: D301 - click's mark for lines that stay as they are
    if url := os.environ.get("LABMATES_STORE_URL"):
        _show_remote(url, as_json=as_json)
    else:
        _show(server_status(), as_json=as_json)


def _require_embedded() -> None:
    if url := os.environ.get("LABMATES_STORE_URL"):
        message = f"LABMATES_STORE_URL names another server: {redact_url(url)}"
        raise UsageError(
            message,
            mend=[["unset", "LABMATES_STORE_URL"]],
            hint="Only the embedded server is started and stopped here.",
        )


def _show(found: ServerStatus, *, as_json: bool) -> None:
    rows: dict[str, object] = {
        "running": found.running,
        "url": found.url,
        "pid": found.pid,
        "version": found.version,
        "data_dir": str(found.data_dir),
        "binary": str(found.binary) if found.binary else None,
        "appendfsync": found.appendfsync,
    }
    _print(rows, as_json=as_json)


def _show_remote(url: str, *, as_json: bool) -> None:
    from contracts.store.connect import connect
    from contracts.store.server import server_facts

    with connect(url) as client:
        found = server_facts(client, url=url)
    rows: dict[str, object] = {
        "running": True,
        "url": redact_url(url),
        "version": f"{found.name} {found.version}",
        "appendonly": "yes" if found.append_only else "no: what it holds is gone when it ends",
        "appendfsync": found.fsync or "unknown: these credentials may not ask",
    }
    _print(rows, as_json=as_json)


def _print(rows: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    shown = {**rows, "running": "yes" if rows["running"] else "no"}
    known = {name.replace("_", " "): value for name, value in shown.items() if value is not None}
    width = max(map(len, known)) + 2
    for name, value in known.items():
        click.echo(f"{name:<{width}}{value}")
