"""`labmates store backup | restore | copy`: goals as files, and from one store to another."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contracts.options import json_option, store_option
from roles.options import print_document

if TYPE_CHECKING:
    from contracts.store.backup import GoalRecords

_goals = click.option(
    "--goal-id", "goal_ids", multiple=True, metavar="GOAL", help="A goal; all of them if left out."
)
_file = click.argument("file", type=click.Path(path_type=Path))


@click.command("backup")
@_file
@_goals
@click.option("--force", is_flag=True, help="Put it in place of a file that exists.")
@store_option
@json_option
def backup(
    file: Path, goal_ids: tuple[str, ...], store: str, *, force: bool, as_json: bool
) -> None:
    """Write goals to a file, checked: their events with their ids (`.gz`: compressed).

    Workers may run meanwhile; each goal is written as it was at one revision.

    \b
    Example:
      labmates store backup lab.jsonl.gz
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.store.backup import read_backup, write_backup

    found = _collect(store, goal_ids)
    write_backup(file, found, force=force)
    read_backup(file)
    _tell(found, f"written to {file} and read back", {"file": str(file)}, as_json=as_json)


@click.command("restore")
@_file
@store_option
@json_option
def restore(file: Path, store: str, *, as_json: bool) -> None:
    """Write the goals of a backup into a store that does not have them.

    The whole file is checked first. A goal that is there with the same events is left alone; one
    with other events refuses the restore.

    \b
    Example:
      labmates store restore lab.jsonl.gz
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.store.backup import read_backup, restore_goals
    from contracts.store.connect import connect, store_url

    goals = read_backup(file)
    url = store_url(store or None)
    with connect(url) as client:
        new = restore_goals(client, goals, url=url)
    _tell(goals, "restored", {"file": str(file)}, new=new, as_json=as_json)


@click.command("copy")
@click.argument("url")
@_goals
@store_option
@json_option
def copy(url: str, goal_ids: tuple[str, ...], store: str, *, as_json: bool) -> None:
    """Copy goals into another store; the workers of this one stay with it.

    \b
    Example:
      labmates store copy redis://lab-2:6379/0
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.store.backup import restore_goals
    from contracts.store.connect import connect
    from contracts.store.wire import redact_url

    found = _collect(store, goal_ids)
    with connect(url) as client:
        new = restore_goals(client, found, url=url)
    shown = redact_url(url)
    _tell(found, f"copied to {shown}", {"to": shown}, new=new, as_json=as_json)


def _collect(store: str, goal_ids: tuple[str, ...]) -> "list[GoalRecords]":
    from contracts.errors import UsageError
    from contracts.goals import choose_goal
    from contracts.store.backup import collect
    from contracts.store.connect import connect, store_url
    from contracts.store.reader import Reader
    from contracts.store.snapshot import known_goals_by_scan

    url = store_url(store or None)
    with connect(url) as client:
        known = known_goals_by_scan(client, url=url)
        wanted = [choose_goal(known, each) for each in goal_ids] or known
        if not wanted:
            message = "there is no goal in this store yet"
            raise UsageError(message, tail="Nothing was written.")
        return [collect(Reader(client, each, url=url)) for each in dict.fromkeys(wanted)]


def _tell(
    goals: "list[GoalRecords]",
    done: str,
    more: dict[str, str],
    *,
    as_json: bool,
    new: list[str] | None = None,
) -> None:
    if as_json:
        rows = [
            {
                "goal_id": each.goal_id,
                "events": each.events,
                "revision": each.state.revision,
                "heads": dict(each.heads),
            }
            | ({} if new is None else {"new": each.goal_id in new})
            for each in goals
        ]
        print_document({**more, "goals": rows})
        return
    for each in goals:
        said = done if new is None or each.goal_id in new else "there already"
        click.echo(f"{each.goal_id}: {each.events} events, {said}")
