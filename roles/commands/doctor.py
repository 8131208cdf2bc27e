"""`labmates doctor`: check the machine, the store, every goal; mend with `--fix`."""

import os
from typing import TYPE_CHECKING

import click

from contracts.options import json_option, store_option
from roles.options import print_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roles.doctor.check import Check


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@click.option(
    "--goal-id",
    envvar="LABMATES_GOAL_ID",
    default="",
    metavar="GOAL",
    help="Only this goal; all goals of the store if left out.",
)
@store_option
@json_option
def doctor(goal_id: str, store: str, *, fix: bool, as_json: bool) -> None:
    """Check machine, store, records and leftovers; without --fix it only reads.

    Exits 0 if nothing was found or all was mended, 1 if something can be mended, 5 if something
    must be there first, 6 if records contradict themselves (`labmates verify` names each event).

    \b
    Example:
      labmates doctor
      labmates doctor --fix --goal-id knn-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    from roles.doctor.check import exit_code

    checks = []
    for each in _checks(goal_id, store, fix=fix):
        checks.append(each)
        if not as_json:
            _print(each)
    code = exit_code(checks)
    if as_json:
        print_document({"ok": code == 0, "checks": [each.to_json_dict() for each in checks]})
    click.get_current_context().exit(code)


def _checks(goal_id: str, store: str, *, fix: bool) -> "Iterator[Check]":
    from contracts.errors import LabmatesError
    from contracts.store.connect import connect
    from contracts.store.reader import Reader
    from contracts.store.snapshot import known_goals_by_scan
    from roles.doctor.check import missing
    from roles.doctor.machine import goal_checks, machine_checks
    from roles.doctor.records import record_checks
    from roles.doctor.store import Server, store_checks

    own = not (store or os.environ.get("LABMATES_STORE_URL"))
    yield from machine_checks(own_store=own)
    url = store or os.environ.get("LABMATES_STORE_URL", "")
    if own:
        line, url = _own_server(fix=fix)
        yield line
        if not url:
            return
    try:
        with connect(url, check=False) as client:
            yield from store_checks(Server(Reader(client, "", url=url), own), fix=fix)
            known = known_goals_by_scan(client, url=url)
            if goal_id and goal_id not in known:
                yield missing(
                    goal_id, "goal", "there is no such goal", ["labmates", "goal", "list"]
                )
            for each in [one for one in known if goal_id in {"", one}]:
                reader = Reader(client, each, url=url)
                yield from record_checks(reader, fix=fix)
                yield from goal_checks(reader, fix=fix)
    except LabmatesError as error:
        mend = error.mend[0] if error.mend else ()
        yield missing("store", "answer", error.message, mend)


def _own_server(*, fix: bool) -> "tuple[Check, str]":
    """Find the embedded server; `fix` starts one that has data."""
    from contracts.errors import LabmatesError
    from contracts.store.embedded import ensure_server, find_server
    from contracts.store.home import labmates_home, store_dir
    from roles.doctor.check import found, missing, ok

    name, data = "server", store_dir(labmates_home())
    try:
        url = find_server()
        if url:
            return ok("store", name, "the embedded server runs"), url
        if not (data / "appendonlydir").is_dir():
            return ok("store", name, "no goal was ever stored here; it starts when needed"), ""
        says, start = f"it does not run; its data is in {data}", ["labmates", "store", "start"]
        if not fix:
            return found("store", name, says, start), ""
        return found("store", name, says, mended=True), ensure_server()
    except LabmatesError as error:
        mend = error.mend[0] if error.mend else ()
        return missing("store", name, error.message, mend), ""


def _print(check: "Check") -> None:
    from contracts.text import inert
    from roles.render import command_line

    name = f"{check.about}: {check.name}"
    click.echo(f"{check.outcome:<8} {inert(name)}: {inert(check.says)}")
    if check.mend:
        click.echo(f"{'':<8} {command_line(check.mend)}")
