"""The program `labmates`: a literal table of commands, and the one place that prints errors.

Theory of operation. Two commands are asked all the time (`quota should-run`, `quota claim`), so
`main` looks for them before click is imported. Everything else is found in `COMMANDS` and imported
only when it is called; the summaries stand here, so that the top help imports no command.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from contracts.errors import LabmatesError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: dict[str, str] = {
    "demo": "demo.commands:demo",
    "plan": "roles.commands.plan:plan",
    "approve": "roles.commands.plan:approve",
    "up": "roles.commands.lanes:up",
    "down": "roles.commands.lanes:down",
    "status": "roles.commands.status:status",
    "pause": "roles.commands.operator:pause",
    "resume": "roles.commands.operator:resume",
    "gate": "roles.commands.operator:gate",
    "todo": "roles.commands.todo:todo",
    "champion": "projection.commands:champion",
    "attempt": "projection.commands:attempt",
    "graph": "projection.commands:graph",
    "report": "projection.commands:report",
    "verify": "projection.commands:verify",
    "agent": "roles.commands.roster:agent",
    "roles": "roles.commands.status:roles",
    "schema": "roles.commands.schema:schema",
    "import": "roles.commands.imports:import_records",
    "store": "roles.commands.store:store",
    "goal": "roles.commands.goal:goal",
    "doctor": "roles.commands.doctor:doctor",
    "worker": "roles.commands.worker:worker",
    "review": "roles.commands.review:review",
    "assess": "roles.commands.review:assess",
    "quota": "quota.commands:quota",
}
"""Command to `"module:attribute"`; the attribute is a click command."""

FOR_AGENTS = ("worker", "review", "assess", "quota")
SUMMARIES: dict[str, str] = {
    "demo": "Show what a run would do; with --execute, run it",
    "plan": "Show the contract of this repository, and its hash",
    "approve": "Freeze the contract with that hash",
    "up": "Start the lanes of a goal",
    "down": "End all lanes; leaves no process and no claim",
    "status": "Phase, lanes, frontier, budget, what waits for you",
    "pause": "No new claims; what runs ends normally",
    "resume": "Take a pause back",
    "gate": "Show and decide what waits for a person",
    "todo": "The shared todos; add an idea",
    "champion": "The promoted change, and how it was measured",
    "attempt": "Every attempt, and one in full",
    "graph": "The evidence graph",
    "report": "What was tried, kept, refuted, and what is missing",
    "verify": "Derive the result again from the records",
    "agent": "The roster: which agent may hold which role",
    "roles": "The role map: primary job, may write, must not",
    "schema": "The JSON Schema of a record",
    "import": "Read records of another implementation",
    "store": "The server; back up, restore and copy goals",
    "goal": "List goals, write one to a file, remove one",
    "doctor": "Check store, records and leftovers; --fix mends",
    "worker": "The always-on worker process of one agent",
    "review": "Review a terminal decision; show findings",
    "assess": "An observation that supports, weakens or falsifies",
    "quota": "Ask for the next step, claim it, renew or hand back",
}


def main() -> None:
    """Run the program with `sys.argv` and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Run one command line and give its exit code; prints errors, never raises one."""
    as_json = "--json" in argv
    try:
        code = _run(argv)
        sys.stdout.flush()
    except LabmatesError as error:
        from roles.render import print_error  # noqa: PLC0415 - not on the cold path

        return print_error(error, as_json=as_json)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _quiet_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - the last net: a fault of ours gets a report
        from roles.render import print_fault  # noqa: PLC0415 - not on the cold path

        return print_fault(error, argv, as_json=as_json)
    return code


def _run(argv: Sequence[str]) -> int:
    if len(argv) > 1 and argv[0] == "quota" and argv[1] in {"should-run", "claim"}:
        from quota import cold  # noqa: PLC0415 - only these two

        code = cold.run(argv[1], argv[2:])
        if code is not None:
            return code
    from roles.group import invoke  # noqa: PLC0415 - click is not on the cold path

    return invoke(argv)


def _quiet_stdout() -> None:
    """Send what is still buffered nowhere: the reader is gone, and exit flushes once more."""
    import os  # noqa: PLC0415 - not on the cold path

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
