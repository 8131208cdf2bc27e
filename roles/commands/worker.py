"""`labmates worker`: the always-on process of one lane."""

import os
import sys

import click


@click.command()
@click.option("--role", default="", help="One role of the agent; all of its roles if left out.")
@click.option(
    "--agent-id", envvar="LABMATES_AGENT_ID", required=True, help="An agent of the roster."
)
@click.option("--goal-id", envvar="LABMATES_GOAL_ID", help="Left out with one goal in the store.")
@click.option("--store", envvar="LABMATES_STORE_URL", help="The store; default: the embedded one.")
@click.option("--stay", is_flag=True, help="Wait on after the goal is done or escalated.")
def worker(role: str, agent_id: str, goal_id: str | None, store: str | None, *, stay: bool) -> None:
    """Serve the roles of one agent: claim, act, show evidence, advance, wait.

    TERM (or Ctrl-C) drains: the step under way ends, then the worker leaves. A second one hands
    the step back. A worker that dies is started again by its lane.

    \b
    Examples:
      labmates worker --agent-id executor-1
      labmates worker --role executor --agent-id solo
    """  # noqa: D301 - click's mark for lines that stay as they are
    from roles.lanes.lives import CHILD_MARK, end_with_parent, keep_alive
    from roles.lanes.program import program

    if CHILD_MARK not in os.environ:
        raise SystemExit(keep_alive([*program(), *sys.argv[1:]]))
    end_with_parent()
    from contracts.goals import open_reader
    from contracts.words import Role
    from roles.lanes.logs import log_to_stderr
    from roles.lanes.worker import run_worker

    if role and role not in {str(each) for each in Role}:
        from contracts.errors import UsageError

        message = f"there is no role {role!r}"
        raise UsageError(message, facts={"roles": ", ".join(Role)}, mend=[["labmates", "roles"]])
    log_to_stderr()
    from contracts.store.connect import with_retries

    # a server that is being started again must not end the lane
    reader = with_retries(lambda: open_reader(goal_id or "", store=store or ""))
    declared = with_retries(lambda: reader.agent(agent_id)).get("declared")
    reader.client.close()
    if declared:
        from roles.lanes.declared import run_declared

        raise SystemExit(run_declared(reader.goal_id, agent_id, url=store, stay=stay))
    asked = Role(role) if role else None
    raise SystemExit(run_worker(reader.goal_id, agent_id, asked, url=store, stay=stay))
