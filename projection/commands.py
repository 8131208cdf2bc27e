"""`labmates graph | attempt | report | verify | champion`: reading only, no write permission needed."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from contracts.canonical import canonical
from contracts.errors import UsageError
from contracts.goals import open_reader
from contracts.options import goal_options
from contracts.store.reader import Reader
from contracts.store.snapshot import read_snapshot
from contracts.text import NONE, inert
from projection import attempts
from projection import report as reports
from projection.champion import champion_document, champion_lines
from projection.exports import lineage, mermaid
from projection.fold import fold
from projection.folders import write_new
from projection.graph import document
from projection.reading import Replayed, replay_goal
from projection.repository import diff, goal_folder, repository_of
from projection.rows import attempt_row
from projection.verify import verify as verify_goal
from projection.verify import verify_snapshot
from projection.verify_text import verification_lines
from projection.view import view_of


@contextmanager
def _reading(goal_id: str, store: str) -> Iterator[Reader]:
    reader = open_reader(goal_id, store=store)
    try:
        yield reader
    finally:
        reader.client.close()


def _loaded(goal_id: str, store: str, at: int | None = None) -> Replayed:
    with _reading(goal_id, store) as reader:
        return replay_goal(reader, at=at)


def _width() -> int:
    if not sys.stdout.isatty():
        return 80
    return min(120, shutil.get_terminal_size((80, 24)).columns)


def _print_json(value: dict[str, Any]) -> None:
    click.echo(canonical(value))


def _print(lines: Sequence[str]) -> None:
    click.echo("\n".join(lines))


# graph ---------------------------------------------------------------------------------------


@click.command("graph")
@goal_options
@click.option(
    "--format", "shape", type=click.Choice(["json", "mermaid"]), help="Of the whole graph."
)
@click.option("--at", type=click.IntRange(min=1), metavar="REV", help="As it was at a revision.")
def graph(goal_id: str, store: str, shape: str | None, at: int | None, *, as_json: bool) -> None:
    r"""Show the evidence graph: on a terminal who refines whom, else the whole as JSON.

    \b
    Example:
      labmates graph --format mermaid --at 41
    """
    if as_json and shape == "mermaid":
        message = "--json and --format mermaid exclude each other"
        raise UsageError(message)
    state = _loaded(goal_id, store, at).state
    if shape == "mermaid":
        click.echo(mermaid(fold(state)), nl=False)
    elif as_json or shape == "json" or not sys.stdout.isatty():
        _print_json(document(state))
    else:
        _print(lineage(state, width=_width()))


# attempt -------------------------------------------------------------------------------------


@click.group("attempt")
def attempt() -> None:
    r"""List every attempt, or show one in full.

    \b
    Example:
      labmates attempt list
      labmates attempt show 3 --diff
    """


@attempt.command("list")
@goal_options
def attempt_list(goal_id: str, store: str, *, as_json: bool) -> None:
    r"""List the attempts, kept and refuted alike.

    \b
    Example:
      labmates attempt list --json
    """
    found = _loaded(goal_id, store)
    view = view_of(found.state, found.now)
    if as_json:
        rows = [attempts.row_json(row) for row in view.attempts]
        _print_json({"goal_id": view.goal_id, "revision": view.revision, "attempts": rows})
        return
    _print(attempts.table(view, width=_width()))


@attempt.command("show")
@goal_options
@click.argument("number", metavar="ID")
@click.option("--diff", "with_diff", is_flag=True, help="The change against its base.")
@click.option("--log", "with_log", is_flag=True, help="What the driver and the evaluation printed.")
def attempt_show(
    goal_id: str, store: str, number: str, *, with_diff: bool, with_log: bool, as_json: bool
) -> None:
    r"""Show one attempt: its numbers, its checks, what decided.

    \b
    Example:
      labmates attempt show 3 --diff
    """
    found = _loaded(goal_id, store)
    state = found.state
    digits = number.removeprefix("#")
    chosen = state.attempts.get(int(digits)) if digits.isascii() and digits.isdigit() else None
    if chosen is None:
        known = ", ".join(map(str, sorted(state.attempts))) or NONE
        message = f"there is no attempt {inert(number)!r} of the goal {state.goal_id}"
        raise UsageError(message, facts={"attempts": known}, mend=[["labmates", "attempt", "list"]])
    row = attempt_row(state, chosen)
    change = _change(state.goal_id, row.base_commit, row.commit) if with_diff else None
    logs = _logs(state.goal_id, row.number) if with_log else None
    if as_json:
        shown: dict[str, Any] = attempts.row_json(row)
        for name, record in (
            ("start", chosen.start),
            ("evidence", chosen.evidence),
            ("evaluation", chosen.evaluation),
            ("holdout_record", chosen.holdout),
            ("retry", chosen.retry),
        ):
            shown[name] = record.to_json_dict() if record else None
        extra = {"diff": change, "log": logs}
        _print_json(shown | {name: text for name, text in extra.items() if text is not None})
        return
    unit = state.contract.evaluation.unit if state.contract else ""
    _print(attempts.detail(state, chosen, unit=unit))
    for text in (change, logs):
        if text is not None:
            click.echo("")
            click.echo(inert(text.rstrip("\n"), lines=True))


def _change(goal_id: str, base: str, commit: str) -> str:
    repository = repository_of(goal_id)
    if not commit:
        return "This attempt made no commit."
    return diff(repository, base, commit) or "This commit changes nothing."


LOG_TAIL_BYTES = 20_000


def _logs(goal_id: str, number: int) -> str:
    folder = goal_folder(goal_id) / "logs"
    parts = []
    for name in (f"attempt-{number}", f"attempt-{number}-dev", f"attempt-{number}-holdout"):
        path = folder / f"{name}.log"
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - LOG_TAIL_BYTES))
                text = stream.read().decode(errors="replace")
        except OSError:
            continue
        parts.append(f"== {name}.log, the last {len(text)} characters\n{text}")
    return "\n".join(parts) or f"There is no log of attempt {number} on this machine."


# report --------------------------------------------------------------------------------------


@click.command("report")
@goal_options
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="A new folder.")
def report(goal_id: str, store: str, out: Path | None, *, as_json: bool) -> None:
    r"""Write the report and the audit trail; never over an earlier one.

    \b
    Example:
      labmates report --out /tmp/knn-report
    """
    with _reading(goal_id, store) as reader:
        snapshot = read_snapshot(reader)
    found = verify_snapshot(snapshot)
    state = found.state
    view = view_of(state, snapshot.now)
    files = reports.trail(state, view, found)
    parent = goal_folder(state.goal_id) if out is None else out.absolute().parent
    folder = write_new(parent, files, name="" if out is None else out.absolute().name)
    if as_json:
        shown = {"goal_id": state.goal_id, "revision": state.revision, "folder": str(folder)}
        _print_json(shown | {"files": sorted(files), "sound": found.sound})
        return
    lines = [reports.headline(view), "", f"missing    {reports.missing(view)}"]
    lines += [f"written    {folder / name}" for name in files]
    if not found.sound:
        lines += ["", "The records contradict themselves: labmates verify"]
    _print(lines)


# verify --------------------------------------------------------------------------------------


@click.command("verify")
@goal_options
@click.option("--records", is_flag=True, help="Exit 0 for sound records, whatever the phase.")
def verify(goal_id: str, store: str, *, records: bool, as_json: bool) -> None:
    r"""Derive the result again from the records, and check every event.

    Exits 0 if they are sound and the goal is genuinely done, 1 if they are sound and it is not,
    6 if they contradict themselves.

    \b
    Example:
      labmates verify --records --json
    """
    with _reading(goal_id, store) as reader:
        found = verify_goal(reader)
    if as_json:
        _print_json(found.to_json_dict())
    else:
        _print(verification_lines(found))
    click.get_current_context().exit(found.exit_code(records_only=records))


# champion ------------------------------------------------------------------------------------


@click.group("champion")
def champion() -> None:
    r"""Show the promoted change: what, how much, how measured.

    \b
    Example:
      labmates champion show
      labmates champion diff
    """


@champion.command("show")
@goal_options
def champion_show(goal_id: str, store: str, *, as_json: bool) -> None:
    r"""Show the champion and how it was measured.

    \b
    Example:
      labmates champion show --json
    """
    found = _loaded(goal_id, store)
    view = view_of(found.state, found.now)
    if as_json:
        _print_json(champion_document(found.state, view))
        return
    _print(champion_lines(found.state, view))


@champion.command("diff")
@goal_options
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
def champion_diff(goal_id: str, store: str, *, stat: bool, as_json: bool) -> None:
    r"""Show the champion's change against the approved base.

    \b
    Example:
      labmates champion diff --stat
    """
    state = _loaded(goal_id, store).state
    contract, now = state.contract, state.champion
    if contract is None or now is None or now.hypothesis_id is None:
        message = f"no change of the goal {state.goal_id} was promoted yet"
        raise UsageError(message, mend=[["labmates", "attempt", "list"]])
    text = diff(repository_of(state.goal_id), contract.base_commit, now.commit, stat=stat)
    if as_json:
        shown = {"base_commit": contract.base_commit, "commit": now.commit, "diff": text}
        click.echo(json.dumps(shown, sort_keys=True, ensure_ascii=False))
        return
    click.echo(inert(text.rstrip("\n"), lines=True))
