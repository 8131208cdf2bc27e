"""`labmates demo`: the dry run, and the run."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from contracts.errors import PreconditionError, UsageError
from contracts.options import json_option, store_option

if TYPE_CHECKING:
    from demo.headless import Outcome, Show
    from demo.preset import Preset
    from demo.summary import Ending


@click.command("demo")
@click.option("--preset", "preset_name", default="knn", show_default=True, help="Which task.")
@click.option("--execute", is_flag=True, help="Run it: makes a goal, starts four lanes.")
@click.option("--headless", is_flag=True, help="In this terminal, as plain processes.")
@click.option("--resume", is_flag=True, help="Go on with the last unfinished run.")
@store_option
@json_option
def demo(
    preset_name: str, store: str, *, execute: bool, headless: bool, resume: bool, as_json: bool
) -> None:
    """Show what a run would do; with --execute --headless, run it.

    A run ends with 0 when its goal is done, 1 when it escalates, 130 on Ctrl-C (once: the lanes
    end what runs; twice: they hand it back).

    \b
    Examples:
      labmates demo
      labmates demo --execute --headless
      labmates demo --execute --headless --resume
    """  # noqa: D301 - click's mark for lines that stay as they are
    from demo.preset import load_preset

    preset = load_preset(preset_name)
    if not execute:
        if headless or resume:
            message = "--headless and --resume go with --execute"
            mend = [["labmates", "demo", "--execute", "--headless"]]
            raise UsageError(message, mend=mend, tail="Nothing was started.")
        _dry_run(preset, as_json=as_json)
        return
    if not headless:
        message = "the lanes have no panes yet in this version"
        mend = [["labmates", "demo", "--execute", "--headless"]]
        raise PreconditionError(message, mend=mend, tail="Nothing was started.")
    code = run_here(preset, store, resume=resume, as_json=as_json)
    if code:
        raise SystemExit(code)


def _dry_run(preset: "Preset", *, as_json: bool) -> None:
    from contracts.canonical import canonical
    from demo.packet import build_packet
    from demo.packet_text import packet_lines

    packet = build_packet(preset)
    if as_json:
        _write_line(canonical(packet.to_json_dict()))
        return
    lines = packet_lines(packet, width=_width())
    on = _takes_colour()
    for number, line in enumerate(lines):
        is_bold = on and (number == 0 or line.startswith("Start it"))
        is_dim = on and line.startswith("LANE ")
        _write_line(f"\x1b[{1 if is_bold else 2}m{line}\x1b[0m" if is_bold or is_dim else line)


def _takes_colour() -> bool:
    from roles.render import colour

    return colour(sys.stdout)


def _width() -> int:
    """Give the terminal's columns between 80 and 120; 80 where there is no terminal."""
    if not sys.stdout.isatty():
        return 80
    return max(80, min(120, shutil.get_terminal_size().columns))


def run_here(preset: "Preset", store: str, *, resume: bool, as_json: bool) -> int:
    """Run a preset in this terminal and print how it ended; gives the exit code."""
    from demo.headless import run_headless

    show = _show(preset.name, as_json=as_json)
    outcome = run_headless(preset, show, store=store, resume=resume)
    if outcome.detached and not as_json:
        click.echo(f"{outcome.goal_id} runs on without this window: labmates status")
        return 0
    ending = _ending(preset, outcome, store)
    _print_summary(ending, as_json=as_json)
    return outcome.exit_code


def _show(preset: str, *, as_json: bool) -> "Show":
    from demo.shows import Lines, Silent

    if as_json:
        return Silent()
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Lines(_write_line)
    from demo.live import LiveShow

    return LiveShow(preset)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ending(preset: "Preset", outcome: "Outcome", store: str) -> "Ending":
    from contracts.store.reader import goal_ids
    from demo.published import measure_published
    from demo.summary import Ending
    from roles.goal.context import open_context

    watched = outcome.watched
    view = watched.view()
    published = None
    if preset.published and view.champion_hypothesis_id and not outcome.stopped:
        context = open_context(outcome.goal_id, url=store)
        try:
            published = measure_published(preset, context, view.champion_commit)
        except KeyboardInterrupt:  # it decides nothing, so it is left out
            published = None
    return Ending(
        state=watched.state,
        view=view,
        stopped=outcome.stopped,
        live=outcome.live,
        claims=outcome.claims,
        workspace=outcome.workspace,
        preset=preset.name,
        published=published,
        several=len(goal_ids(watched.reader.client, url=watched.reader.url)) > 1,
    )


def _print_summary(
    ending: "Ending", *, as_json: bool, write: Callable[[str], None] = _write_line
) -> None:
    from contracts.canonical import canonical
    from demo.summary import summary_document, summary_lines

    if as_json:
        write(canonical(summary_document(ending)))
        return
    first, *rest = summary_lines(ending, width=_width())
    if _takes_colour():
        code = {"done": "1;32", "stop": "1;33"}.get(first[:4], "1;31")
        first = f"\x1b[{code}m{first}\x1b[0m"
    write("\n".join(["", first, *rest]))
