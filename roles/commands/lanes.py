"""`labmates up` and `labmates down`: the lanes of an approved goal on this machine."""

import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

import click

from contracts.errors import PreconditionError, RefusedError
from roles.options import goal_options, print_document

if TYPE_CHECKING:
    from contracts.store.reader import Reader
    from roles.goal.context import GoalContext
    from roles.lanes.launch import Lanes


@click.command()
@click.option("--headless", is_flag=True, help="Plain processes; their events in this terminal.")
@click.option(
    "--lanes", metavar="ROLE=N|AGENT,...", help="Lanes of a role, or an agent of the roster."
)
@click.option(
    "--detach", is_flag=True, help="Return when the lanes run; `labmates down` ends them."
)
@goal_options
def up(
    goal_id: str, store: str, lanes: str | None, *, headless: bool, detach: bool, as_json: bool
) -> None:
    """Start the lanes of a goal; a second `up` finds the first.

    Ends with 0 when the goal is done, 1 when it escalates, 130 on Ctrl-C (once: the steps under
    way end; twice: they are handed back).

    \b
    Example:
      labmates up --headless --lanes executor=2
      labmates up --headless --lanes solo,narrator-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.goals import open_reader
    from roles.goal.context import open_context
    from roles.goal.contract_file import require_unchanged
    from roles.goal.goals import operator_name, repository_of
    from roles.lanes.ending import lane_processes
    from roles.lanes.launch import Lanes, lanes_from, register_lanes

    reader = open_reader(goal_id, store=store)
    wanted = lanes_from(lanes, roster=_roster(reader))
    context = open_context(reader.goal_id, url=store)
    goal = context.reader.require_goal()
    if goal.get("status") != "approved":
        message = f"the contract of {context.goal_id} is not approved"
        raise RefusedError(message, reason="contract_unapproved", mend=[["labmates", "plan"]])
    require_unchanged(context.reader, repository_of(context.goal_id))
    running = lane_processes(context)
    missing = [lane for lane in wanted if lane[0] not in running]
    if running and not missing:
        document = {"goal_id": context.goal_id, "running": sorted(running), "started": []}
        if as_json:
            print_document(document)
        else:
            click.echo(f"{context.goal_id} is up already: {', '.join(sorted(running))}")
        return
    if not headless:
        message = "the lanes have no panes yet in this version"
        mend = [["labmates", "up", "--headless"]]
        raise PreconditionError(message, mend=mend, tail="Nothing was started.")
    register_lanes(context, missing, operator_name())
    started = Lanes(context)
    started.start(missing)
    names = [agent for agent, _ in missing]
    if not as_json:
        click.echo(f"{context.goal_id}: started {', '.join(names)}")
    if detach:
        if as_json:
            print_document({"goal_id": context.goal_id, "running": names, "started": names})
        return
    raise SystemExit(_attend(context, started, as_json=as_json))


def _roster(reader: "Reader") -> dict[str, list[str]]:
    """Give the roster: agent -> its roles out of the four; none for one that declares its own."""
    found = {agent_id: reader.agent(agent_id) for agent_id in reader.agent_ids()}
    return {
        agent_id: [role for role in fields.get("roles", "").split(",") if role]
        for agent_id, fields in found.items()
        if fields.get("roles") or fields.get("declared")
    }


def _attend(context: "GoalContext", started: "Lanes", *, as_json: bool) -> int:
    """Stay with the lanes until they end; one line for each move of an item."""
    asked = 0

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    told = 0
    while started.tend():
        if asked > told:
            told = asked
            started.signal()
        if not as_json:
            _print_events(context)
        time.sleep(0.1)  # the lanes are processes: there is nothing here to wait on at once
    if not as_json:
        _print_events(context)
    decision = context.reader.should_run("-", brief=True)  # nobody: asks for the phase alone
    phase = str(decision.get("phase"))
    failed = dict(started.failed())
    outcome = {
        "goal_id": context.goal_id,
        "phase": phase,
        "gave_up": started.given_up(),
        "failed": failed,
    }
    if as_json:
        print_document(outcome)
    else:
        for agent, code in failed.items():
            log = context.folder / "logs" / f"{agent}.log"
            click.echo(f"{agent} ended with exit code {code}: {log}")
        click.echo(f"{context.goal_id}: {'stopped' if asked else phase}")
    if asked:
        return 130
    return {"done": 0, "escalate": 1}.get(phase, 70 if started.given_up() else 1)


def _print_events(context: "GoalContext") -> None:
    for event in context.follower.catch_up():
        if event.to_state and event.hypothesis_id:
            who = f"{event.agent_id:<12} {event.hypothesis_id}"
            why = f", {event.reason}" if event.reason else ""
            sys.stdout.write(f"rev {event.revision:<5} {who} is {event.to_state}{why}\n")
    sys.stdout.flush()


@click.command()
@goal_options
@click.option("--patience", default=20.0, show_default=True, help="Seconds a step may still take.")
def down(goal_id: str, store: str, patience: float, *, as_json: bool) -> None:
    """End the lanes of a goal on this machine; leaves no process and no claim.

    A running attempt is ended as `needs_retry` when its lane does not end in time.

    \b
    Example:
      labmates down
    """  # noqa: D301 - click's mark for lines that stay as they are
    from contracts.goals import open_reader
    from roles.goal.context import open_context
    from roles.lanes.ending import end_lanes, lane_processes

    reader = open_reader(goal_id, store=store)
    context = open_context(reader.goal_id, url=store)

    def tell(text: str) -> None:
        if not as_json:
            click.echo(text)

    ended = end_lanes(context, patience_s=patience, tell=tell)
    claims = {
        agent: found["claim"]
        for agent in context.reader.agent_ids()
        if (found := context.reader.agent(agent)).get("claim")
    }
    left = sorted(lane_processes(context))
    if as_json:
        document = {"goal_id": context.goal_id, "ended": ended, "left": left, "claims": claims}
        print_document(document)
        raise SystemExit(1 if left else 0)
    for agent in left:
        click.echo(f"{agent} still runs")
    if not ended and not left:
        click.echo(f"no lane of {context.goal_id} runs on this machine")
    for agent, todo in claims.items():
        click.echo(f"{todo} is still claimed by {agent}; its lease ends by itself")
    raise SystemExit(1 if left else 0)
