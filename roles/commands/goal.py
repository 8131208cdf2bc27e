"""`labmates goal list | archive | remove`: the goals of a store, and their end."""

from pathlib import Path

import click

from contracts.options import goal_options, json_option, store_option
from roles.options import print_document


@click.group("goal")
def goal() -> None:
    """List the goals of the store, write one to a file, remove one.

    \b
    Example:
      labmates goal list
    """  # noqa: D301 - click's mark for lines that stay as they are


@goal.command("list")
@store_option
@json_option
def goal_list(store: str, *, as_json: bool) -> None:
    """List the goals: state, revision, hypotheses, promotions.

    \b
    Example:
      labmates goal list --json
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.store.connect import connect, store_url
    from contracts.store.reader import Reader, goal_ids
    from contracts.text import inert

    url = store_url(store or None)
    rows = []
    with connect(url) as client:
        for goal_id in goal_ids(client, url=url):
            found = Reader(client, goal_id, url=url).goal()
            counts = ("rev", "hypothesis_count", "live", "promotions")
            numbers = {name: int(found.get(name) or 0) for name in counts}
            status = found.get("status", "missing")
            paused = found.get("paused") == "1"
            rows.append({"goal_id": goal_id, "status": status, "paused": paused, **numbers})
    if as_json:
        print_document({"goals": rows})
        return
    if not rows:
        click.echo("There is no goal in this store yet.")
    for row in rows:
        state = "paused" if row["paused"] else row["status"]
        click.echo(
            f"{inert(row['goal_id'])}  {inert(state)}, revision {row['rev']}, "
            f"{row['hypothesis_count']} hypotheses ({row['live']} live), "
            f"{row['promotions']} promoted"
        )


@goal.command("archive")
@click.argument("file", type=click.Path(path_type=Path))
@goal_options
@click.option("--force", is_flag=True, help="Put it in place of a file that exists.")
def archive(file: Path, goal_id: str, store: str, *, force: bool, as_json: bool) -> None:
    """Write one goal to a file, and check it by reading it back.

    `labmates store restore` brings it back, into any store.

    \b
    Example:
      labmates goal archive knn-1.jsonl.gz --goal-id knn-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.goals import open_reader
    from contracts.store.backup import collect, read_backup, write_backup

    reader = open_reader(goal_id, store=store)
    with reader.client:
        found = collect(reader)
    write_backup(file, [found], force=force)
    read_backup(file)
    if as_json:
        document = {"goal_id": found.goal_id, "file": str(file), "events": found.events}
        print_document(document | {"heads": dict(found.heads)})
        return
    click.echo(f"{found.goal_id}: {found.events} events, written to {file} and read back")
    click.echo(f"To drop it here: labmates goal remove {found.goal_id} --archive {file}")


@goal.command("remove")
@click.argument("goal_id", metavar="GOAL")
@click.option(
    "--archive", "file", type=click.Path(path_type=Path), help="The file that holds this goal."
)
@click.option("--no-archive", is_flag=True, help="Remove it although no file holds it.")
@click.option("--branches", is_flag=True, help="Delete labmates/GOAL/* in the repository too.")
@store_option
@json_option
def remove(
    goal_id: str, file: Path | None, store: str, *, no_archive: bool, branches: bool, as_json: bool
) -> None:
    """Drop a goal's keys from the store and its folders from this machine.

    The repository stays as it is: its files, its branches (unless --branches), its history.

    \b
    Example:
      labmates goal remove knn-1 --archive knn-1.jsonl.gz
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.goals import open_reader
    from roles.lanes.removal import remove_goal, require_archived

    reader = open_reader(goal_id, store=store)
    with reader.client:
        heads = require_archived(reader, file, no_archive=no_archive)
        gone = remove_goal(reader, heads, branches=branches)
    if as_json:
        print_document({"goal_id": goal_id, "removed": gone})
        return
    for what in gone:
        click.echo(f"removed    {what}")
