"""`labmates quota should-run | claim | renew | release | spend | frontier`."""

import sys
from typing import Any

import click

from contracts.canonical import canonical
from contracts.errors import RefusedError, UsageError
from contracts.goals import open_reader
from contracts.options import agent_option, goal_options, require_agent
from contracts.records import Spend
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Held, Writer
from contracts.text import inert, table
from contracts.words import Role
from quota import cold, frontier, warm
from quota.document import exit_code, iso
from quota.request import Request, new_operation

_role_option = click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=None,
    help="Needed only by an agent with several roles.",
)
MAX_USD = 1_000_000.0


@click.group("quota")
def quota() -> None:
    """Ask for the next step, claim it, renew it or hand it back.

    \b
    Example:
      labmates quota should-run --agent-id executor-1
    """  # noqa: D301 - click's mark for lines that stay as they are


@quota.command("should-run")
@agent_option
@_role_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0, max=86400),
    default=0.0,
    metavar="SECONDS",
    help="Block until the answer is yes, or the time is over.",
)
@goal_options
def should_run(
    agent_id: str, role: str | None, wait_s: float, goal_id: str, store: str, *, as_json: bool
) -> int:
    """May this agent take the next step, with what, and why. Reads only; exits 0 for yes, 1 for no.

    \b
    Examples:
      labmates quota should-run --agent-id executor-1 && echo work
      labmates quota should-run --agent-id executor-1 --wait 60 --json
    """  # noqa: D301 - click's mark for lines that stay as they are
    request = _request("should-run", agent_id, role, goal_id, store)
    return _answer(request, wait_s=wait_s, as_json=as_json)


@quota.command("claim")
@agent_option
@_role_option
@click.option("--todo-id", default="", help="Claim this one or nothing; it must be the first.")
@goal_options
def claim(
    agent_id: str, role: str | None, todo_id: str, goal_id: str, store: str, *, as_json: bool
) -> int:
    """The same decision, taken in one step, and the claim with it.

    \b
    Example:
      labmates quota claim --agent-id executor-1
    """  # noqa: D301 - click's mark; it says what it is
    request = _request("claim", agent_id, role, goal_id, store)._replace(todo_id=todo_id)
    return _answer(request, wait_s=0.0, as_json=as_json)


@quota.command("renew")
@agent_option
@goal_options
def renew(agent_id: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Renew the lease of the agent's claim.

    \b
    Example:
      labmates quota renew --agent-id executor-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader, writer = _open(goal_id, store)
    held = _held(reader, require_agent(agent_id))
    ends = writer.renew(agent_id=agent_id, incarnation=held.incarnation, held=held)
    document = {"todo_id": held.todo_id, "fence": held.fence, "lease_until": iso(ends)}
    seconds = max(0, ends - reader.now_ms()) // 1000
    _print(document, f"{held.todo_id} is {agent_id}'s for another {seconds} s", as_json=as_json)


@quota.command("release")
@agent_option
@click.option("--reason", default="stopped", show_default=True, help="Why it is handed back.")
@goal_options
def release(agent_id: str, reason: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Hand the claim back before its step; an attempt under way is refused (exit code 3).

    \b
    Example:
      labmates quota release --agent-id executor-1 --reason stopped
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader, writer = _open(goal_id, store)
    held = _held(reader, require_agent(agent_id))
    if not reason.isascii() or not reason.isprintable() or len(reason) > 60:
        message = "a reason is one short line of plain text (at most 60 characters)"
        raise UsageError(message)
    writer.release(held, reason)
    document = {"todo_id": held.todo_id, "released": True, "reason": reason}
    _print(document, f"{held.todo_id} is handed back: {reason}", as_json=as_json)


@quota.command("spend")
@agent_option
@click.option("--usd", type=float, required=True, help="What the attempt cost, in US dollars.")
@goal_options
def spend(agent_id: str, usd: float, goal_id: str, store: str, *, as_json: bool) -> None:
    """Settle the cost of the attempt under the agent's claim; once per attempt.

    \b
    Example:
      labmates quota spend --agent-id executor-1 --usd 0.22
    """  # noqa: D301 - click's mark for lines that stay as they are
    if not 0 <= usd <= MAX_USD:  # refuses nan too
        message = f"--usd must be a number from 0 to {MAX_USD:.0f}, not {usd}"
        raise UsageError(message)
    reader, writer = _open(goal_id, store)
    held = _held(reader, require_agent(agent_id))
    attempt = reader.item(held.todo_id).get("attempt", "")
    if not attempt:
        message = f"{held.todo_id} has no attempt whose cost could be settled"
        raise RefusedError(message, reason="no_attempt", missing="an attempt that was started")
    body = canonical({"spend": Spend(attempt=int(attempt), cost_usd=usd).to_json_dict()})
    writer.spend(held, micro_usd=round(usd * 1_000_000), body=body)
    document = {"todo_id": held.todo_id, "attempt": int(attempt), "cost_usd": usd}
    _print(document, f"{usd:.2f} USD for attempt {attempt} of {held.todo_id}", as_json=as_json)


@quota.command("frontier")
@agent_option
@goal_options
def show_frontier(agent_id: str, goal_id: str, store: str, *, as_json: bool) -> int:
    """What this agent could take, in order, and what is held back. Reads only.

    \b
    Example:
      labmates quota frontier --agent-id executor-1
    """  # noqa: D301 - click's mark; it says what it shows
    reader = open_reader(goal_id, store=store)
    document = frontier.build(reader, require_agent(agent_id))
    if as_json:
        sys.stdout.write(canonical(document) + "\n")
    else:
        sys.stdout.write(_frontier_text(document))
    return 3 if document["reason"] in {"agent_unknown", "role_mismatch"} else 0


def _frontier_text(document: dict[str, Any]) -> str:
    agent, reason = inert(document["agent_id"]), document["reason"]
    lines = [f"{agent}: {reason}, {document['goal_id']} rev {document['revision']}"]
    if chosen := document["selected"]:
        named = "  ".join(part for part in (chosen["todo_id"], chosen["hypothesis_id"]) if part)
        lines.append(f"selected: {inert(named)}, {chosen['allowed_action']}")
    lines.append("")
    sections = (
        ("RUNNABLE", "runnable", "allowed_action"),
        ("BLOCKED", "blocked", "blocked_by"),
        ("TO PROMOTE", "promotion_candidates", "requires"),
        ("TO RETIRE", "retirement_candidates", "requires"),
    )
    rows: list[tuple[str, str, str, str]] = []
    for head, name, why in sections:
        for position, each in enumerate(document[name], start=1):
            text = each[why] if isinstance(each[why], str) else ", ".join(each[why])
            named = "  ".join(part for part in (each["hypothesis_id"], each["title"]) if part)
            rows.append((head if position == 1 else "", each["todo_id"], inert(named), inert(text)))
    if rows:
        lines += table(("", "TODO", "HYPOTHESIS", "WHY"), rows)
    else:
        lines.append("nothing is runnable, blocked, or waits for a signature")
    return "\n".join(lines) + "\n"


def _request(command: str, agent_id: str, role: str | None, goal_id: str, store: str) -> Request:
    context = click.get_current_context()
    source = context.get_parameter_source("goal_id")
    return Request(
        command=command,
        agent_id=require_agent(agent_id),
        goal_id=goal_id,
        role=role or "",
        todo_id="",
        store=store,
        named_goal=source is click.core.ParameterSource.COMMANDLINE,
        as_json=False,
        operation=new_operation(),
    )


def _answer(request: Request, *, wait_s: float, as_json: bool) -> int:
    document = warm.answer(request, wait_s=wait_s)
    cold.show(document, as_json=as_json)
    return exit_code(document)


def _open(goal_id: str, store: str) -> tuple[Reader, Writer]:
    reader = open_reader(goal_id, store=store)
    ensure_library(reader.client)
    return reader, Writer(reader.client, reader.goal_id, url=reader.url)


def _held(reader: Reader, agent_id: str) -> Held:
    """Read the agent's claim as the store has it.

    Raises:
        RefusedError: The agent is not on the roster, or holds nothing.
    """
    agent = reader.agent(agent_id)
    if not agent.get("roles"):
        message = f"{agent_id} is not on the roster"
        mend = [["labmates", "agent", "list"]]
        raise RefusedError(message, reason="agent_unknown", missing=agent_id, mend=mend)
    todo = agent.get("claim", "")
    item = reader.item(todo) if todo else {}
    if item.get("claimed_by") != agent_id:
        message = f"{agent_id} holds no claim"
        mend = [["labmates", "quota", "should-run", "--agent-id", agent_id]]
        raise RefusedError(
            message, reason="not_claimed", missing=f"a claim of {agent_id}", mend=mend
        )
    return Held(
        goal_id=reader.goal_id,
        agent_id=agent_id,
        incarnation=item.get("incarnation", ""),
        role=item.get("claim_role", ""),
        todo_id=todo,
        fence=int(item.get("fence", "0")),
        version=int(item.get("version", "0")),
    )


def _print(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    sys.stdout.write((canonical(document) if as_json else inert(text)) + "\n")
