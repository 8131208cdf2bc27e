"""`labmates agent`: the roster, which agent may hold which role."""

import tomllib
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from contracts.canonical import canonical
from contracts.declared import DeclaredRole
from contracts.errors import UsageError
from contracts.goals import open_reader
from contracts.ids import AGENT_ID_PATTERN, is_agent_id
from contracts.records import AgentRegistration
from contracts.text import inert, table
from contracts.words import Role
from roles.goal.goals import operator_name
from roles.options import Opened, goal_options, open_goal, print_document, say


@click.group("agent")
def agent() -> None:
    """The roster: which agent may hold which role.

    \b
    Example:
      labmates agent list
    """  # noqa: D301 - click's mark for lines that stay as they are


@agent.command("list")
@goal_options
def agent_list(goal_id: str, store: str, *, as_json: bool) -> None:
    """List the agents with their roles, their claim, and whether their process is alive.

    \b
    Example:
      labmates agent list
    """  # noqa: D301 - click's mark for lines that stay as they are
    reader = open_reader(goal_id, store=store)
    now = reader.now_ms()
    agents: list[dict[str, Any]] = []
    for name in reader.agent_ids():
        fields = reader.agent(name)
        declared = fields.get("declared", "")
        if fields.get("roles") or declared:
            alive = int(fields.get("inc_until") or 0) > now
            roles = [DeclaredRole.model_validate_json(declared).name] if declared else []
            agents.append(
                {
                    "agent_id": name,
                    "roles": roles or fields["roles"].split(","),
                    "declared": bool(declared),
                    "claim": fields.get("claim") or None,
                    "alive": alive,
                    "host": fields.get("inc_host") or None if alive else None,
                }
            )
    if as_json:
        print_document({"goal_id": reader.goal_id, "agents": agents})
        return
    rows = [
        (
            inert(each["agent_id"]),
            inert(", ".join(each["roles"])) + (" (declared)" if each["declared"] else ""),
            inert(each["claim"]),
            "alive" if each["alive"] else "down",
        )
        for each in agents
    ]
    if not rows:
        click.echo("nobody is on the roster; add one: labmates agent add NAME --role ROLE")
        return
    click.echo("\n".join(table(("AGENT", "ROLES", "CLAIM", "PROCESS"), rows)))


@agent.command("add")
@click.argument("name")
@click.option("--role", "roles", default="", metavar="R[,R]", help="One role, or several.")
@click.option(
    "--declare",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A role beyond the four, as TOML; it reads, and writes no event.",
)
@goal_options
def agent_add(
    name: str, roles: str, declare: Path | None, goal_id: str, store: str, *, as_json: bool
) -> None:
    """Register an agent with its roles; the same registration again changes nothing.

    \b
    Examples:
      labmates agent add executor-2 --role executor
      labmates agent add solo --role curator,proposer,executor,evaluator
      labmates agent add narrator-1 --declare narrator.toml
    """  # noqa: D301 - click's mark for lines that stay as they are
    if bool(roles) == (declare is not None):
        message = "an agent has roles, or declares one"
        raise UsageError(message, hint="Give --role, or --declare FILE.")
    declared = read_declaration(declare) if declare else None
    named = [] if declared else _roles(roles)
    if not is_agent_id(name):
        message = f"{name!r} cannot name an agent"
        hint = "Use lower-case letters, digits, - and _, at most 63, not starting with - or _."
        raise UsageError(message, facts={"form": AGENT_ID_PATTERN}, hint=hint)
    opened = open_goal(goal_id, store=store)
    _register(opened, name, named, declared)
    if declared is not None:
        text = f"{name} is {declared.name}, a role of its own; start it: labmates up --lanes {name}"
        say({"agent_id": name, "roles": [declared.name]}, text, as_json=as_json)
        return
    say({"agent_id": name, "roles": named}, f"{name} may be: {', '.join(named)}", as_json=as_json)


@agent.command("remove")
@click.argument("name")
@goal_options
def agent_remove(name: str, goal_id: str, store: str, *, as_json: bool) -> None:
    """Take an agent off the roster; one that holds a claim is refused (exit code 3).

    \b
    Example:
      labmates agent remove executor-2
    """  # noqa: D301 - click's mark for lines that stay as they are
    opened = open_goal(goal_id, store=store)
    fields = opened.reader.agent(name)
    words = fields.get("declared", "")
    if not fields.get("roles") and not words:
        message = f"{name!r} is not on the roster"
        known = ", ".join(opened.reader.agent_ids()) or "none"
        mend = [["labmates", "agent", "list"]]
        raise UsageError(message, facts={"agents": known}, mend=mend)
    declared = DeclaredRole.model_validate_json(words) if words else None
    roles = [role for role in fields.get("roles", "").split(",") if role]
    _register(opened, name, roles, declared, removed=True)
    say({"agent_id": name, "roles": []}, f"{name} is off the roster", as_json=as_json)


def _register(
    opened: Opened,
    name: str,
    roles: list[str],
    declared: DeclaredRole | None,
    *,
    removed: bool = False,
) -> None:
    record = AgentRegistration(
        agent_id=name, roles=tuple(map(Role, roles)), removed=removed, declaration=declared
    )
    opened.writer.register(
        operator=operator_name(),
        agent_id=name,
        roles=[] if removed else roles,
        body=canonical({"registration": record.to_json_dict()}),
        declared=canonical(declared.to_json_dict()) if declared and not removed else "",
    )


def _roles(text: str) -> list[str]:
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(wanted - set(Role))
    if unknown or not wanted:
        message = f"there is no role {unknown[0]!r}" if unknown else "no role is named"
        raise UsageError(message, facts={"roles": ", ".join(Role)}, mend=[["labmates", "roles"]])
    return [str(role) for role in Role if role in wanted]


def read_declaration(file: Path) -> DeclaredRole:
    """Read the declaration of a role beyond the four; words that name files beside it are those.

    Raises:
        UsageError: It cannot be read, does not validate, takes the name of one of the four roles,
            or asks for authority that no declared role has.
    """
    facts = {"file": str(file)}
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{file} cannot be read as TOML"
        raise UsageError(message, facts=facts | {"why": str(error)}) from error
    if asked := found.get("may_write"):
        message = f"{file} asks to write, and a declared role writes no event"
        hint = "Leave may_write empty: its output is kept as a file, beside the records."
        raise UsageError(message, facts=facts | {"may_write": str(asked)}, hint=hint)
    beside = file.absolute().parent
    words = found.get("command")
    if isinstance(words, list):
        found["command"] = [_beside(beside, word) for word in words]
    try:
        return DeclaredRole.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        why = str(first["msg"]).removeprefix("Value error, ")
        message = f"{file} declares no role: {place + ': ' if place else ''}{why}"
        hint = "name, capability_token, primary_job, reads and command must be there."
        raise UsageError(message, facts=facts, hint=hint) from error


def _beside(folder: Path, word: object) -> object:
    """Give a word that names a file of the folder as its path; any other as it is."""
    if not isinstance(word, str) or not word or word.startswith("-"):
        return word
    path = folder / word
    return str(path) if path.is_file() else word
