"""`labmates plan` and `labmates approve`."""

import re
from pathlib import Path
from typing import Any

import click

from contracts.errors import RefusedError, UsageError
from contracts.store.connect import connect, store_url
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Writer
from contracts.text import facts, inert
from roles.goal.contract_file import PlannedContract, read_contract, void_if_changed
from roles.goal.contract_toml import FILE
from roles.goal.first_run import FirstRun, first_run
from roles.goal.goals import approval_of, contract_of, create_goal
from roles.goal.sources import order
from roles.options import json_option, operator_name, print_document, store_option

_HASH = re.compile(r"[0-9a-f]{8,64}")
_FILES_SHOWN = 12

_new_goal_option = click.option(
    "--goal-id",
    envvar="LABMATES_GOAL_ID",
    default="",
    metavar="GOAL",
    help="Name of the goal; from the repository's folder if left out.",
)


@click.command("plan")
@_new_goal_option
@click.option("--check", is_flag=True, help="Run the dev command once, and show its number.")
@json_option
def plan(*, goal_id: str, check: bool, as_json: bool) -> None:
    """Show the contract of this repository in full, and its hash.

    Reads labmates.toml and the commit that is checked out; writes nothing, and needs no store.

    \b
    Examples:
      labmates plan
      labmates plan --check
    """  # noqa: D301 - click's mark for lines that stay as they are
    planned = read_contract(Path.cwd(), goal_id=goal_id or None)
    run = first_run(planned) if check else None
    if as_json:
        print_document(plan_document(planned, run))
        return
    click.echo("\n".join(plan_text(planned, run)))


@click.command("approve")
@click.argument("contract_hash", metavar="HASH")
@_new_goal_option
@click.option("--unchecked", is_flag=True, help="Do not run the dev command once before.")
@store_option
@json_option
def approve(
    *, contract_hash: str, goal_id: str, unchecked: bool, store: str, as_json: bool
) -> None:
    """Freeze exactly the contract with this hash; it becomes one goal, for ever.

    HASH is what `labmates plan` shows: all of it, or at least its first 8 digits. The dev command
    runs once before: a goal whose metric gives no number would only wait for you overnight.

    \b
    Example:
      labmates approve b14a1354
    """  # noqa: D301 - click's mark for lines that stay as they are
    wanted = contract_hash.strip().lower()
    if not _HASH.fullmatch(wanted):
        message = f"{contract_hash!r} is no hash of a contract"
        hint = "give at least the first 8 of its hexadecimal digits"
        raise UsageError(message, mend=[["labmates", "plan"]], hint=hint)
    planned = read_contract(Path.cwd(), goal_id=goal_id or None)
    goal_id = planned.contract.context.goal_id
    url = store_url(store or None)
    client = connect(url)
    try:
        ensure_library(client)
        reader = Reader(client, goal_id, url=url)
        if not planned.contract_hash.startswith(wanted):
            _refuse(reader, planned, wanted)
        if not unchecked and not reader.goal():
            first_run(planned)
        new = create_goal(
            Writer(client, goal_id, url=url),
            planned.contract,
            operator_name(),
            planned.repository,
            contract_text=planned.text,
        )
        who = (approval_of(reader) or (operator_name(), None))[0].removeprefix("operator:")
    finally:
        client.close()
    _show_approved(planned, who, new=new, as_json=as_json)


def plan_document(planned: PlannedContract, run: FirstRun | None = None) -> dict[str, Any]:
    """Give the plan as one JSON document."""
    feasible = order(planned.queue)
    document: dict[str, Any] = {
        "goal_id": planned.contract.context.goal_id,
        "contract_hash": planned.contract_hash,
        "contract": planned.contract.to_json_dict(),
        "editable_files": list(planned.editable_files),
        "protected_files": list(planned.protected_files),
        "queue": {
            "file": planned.contract.strategy.queue,
            "feasible": [{"line": e.line, "title": e.title, "driver": e.driver} for e in feasible],
            "not_feasible": [e.line for e in planned.queue if not e.feasible],
        },
        "warnings": list(planned.warnings),
        "next": ["labmates", "approve", planned.contract_hash],
    }
    if run is not None:
        document["first_run"] = {"score": run.score, "duration_s": run.duration_s}
    return document


def plan_text(planned: PlannedContract, run: FirstRun | None = None) -> list[str]:
    """Give the plan as people read it: what it is, what it allows, and the next command."""
    contract = planned.contract
    context, evaluation, environment = contract.context, contract.evaluation, contract.environment
    short = planned.contract_hash[:8]
    skipped = sum(not entry.feasible for entry in planned.queue)
    queue = f"{len(order(planned.queue))} hypotheses in {contract.strategy.queue}"
    queue += f", {skipped} more not feasible" if skipped else ""
    score = f"the last number or marked line, {evaluation.channel}"
    if evaluation.channel == "file":
        score = "JSON in the file that $LABMATES_RESULT names"
    rows = [
        ("Goal", context.objective),
        ("Metric", _metric(planned)),
        ("Dev", evaluation.dev),
        ("Held out", evaluation.holdout or "none required"),
        ("Score", f"{score}; {evaluation.pairs} pairs, seed {evaluation.seed}"),
        ("Runs with", f"{environment.python}, {environment.timeout_s:g} s a run{_env(planned)}"),
        ("Edit", _files(planned.editable_files)),
        ("Protect", _files(planned.protected_files)),
        ("Globs", f"edit {' '.join(context.editable)}; protect {' '.join(context.protected)}"),
        ("Queue", f"{queue}; driver {contract.strategy.driver} where a line names none"),
        ("Stops", _stops(planned)),
        ("Budget", _budget(planned)),
        ("Gates", "a person decides each promotion" if contract.policy.owner_gate else "none"),
        ("Isolation", f"{contract.policy.isolation}; candidates run as processes of yours"),
        ("Base", contract.base_commit[:12]),
        ("Hash", planned.contract_hash),
    ]
    if run is not None:
        value = f"{run.score:g} {evaluation.unit}".strip()
        rows.append(("First run", f"{value}   ({run.command}, {run.duration_s:.1f} s)"))
    rows += [("Note", warning) for warning in planned.warnings]
    head = f"Contract {short} of goal {context.goal_id}. Nothing was written or started."
    lines = [head, "", *facts([(label, inert(text)) for label, text in rows])]
    lines += ["", *_check_table(planned), ""]
    return [*lines, f"Next: labmates approve {short}{_goal_flag(planned)}"]


def _metric(planned: PlannedContract) -> str:
    evaluation = planned.contract.evaluation
    text = f"{evaluation.metric}, {evaluation.direction}"
    if evaluation.target is None:
        return f"{text}; no target"
    how = "the low end of its interval" if evaluation.target_by == "low_end" else "its value"
    return f"{text}; target {evaluation.target:g}{evaluation.unit} by {how}"


def _env(planned: PlannedContract) -> str:
    env = planned.contract.environment.env
    return "".join(f", {name}={value}" for name, value in sorted(env.items()))


def _files(files: tuple[str, ...]) -> str:
    shown = " ".join(files[:_FILES_SHOWN])
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return f"{shown}{more}   ({len(files)} file{'' if len(files) == 1 else 's'})"


def _stops(planned: PlannedContract) -> str:
    if planned.contract.strategy.stop == "queue_empty":
        return "when the queue is empty, or the budget is"
    return "at the target, or when the queue or the budget is empty"


def _budget(planned: PlannedContract) -> str:
    contract = planned.contract
    policy = contract.policy
    at_once = "one" if policy.max_parallel == 1 else str(policy.max_parallel)
    cost = f"{policy.max_cost_usd:.2f} USD" if policy.max_cost_usd else "no limit of cost"
    deadline = f"{policy.deadline_s} s from approval" if policy.deadline_s else "no deadline"
    return (
        f"{policy.max_attempts} attempts, {at_once} at a time, {policy.attempt_timeout_s:g} s each; "
        f"retries of one hypothesis {policy.retries}; {contract.holdout_limit} held-out questions; "
        f"{cost}; {deadline}"
    )


def _check_table(planned: PlannedContract) -> list[str]:
    evaluation = planned.contract.evaluation
    checks = [("scope_clean", "true"), ("exit_code", "= 0"), ("score", "finite")]
    if evaluation.bounds is not None:
        low, high = evaluation.bounds
        checks.append(("score_in_bounds", f"[{low:g}, {high:g}]"))
    if evaluation.guard:
        checks.append(("guard", f"exit code 0 of: {inert(evaluation.guard)}"))
    checks += [("artifact", inert(name)) for name in evaluation.required_artifacts]
    if evaluation.max_relative_spread is not None:
        checks.append(("relative_spread", f"<= {evaluation.max_relative_spread:g}"))
    checks.append(("gain_low95", f">= {1 + evaluation.min_gain:.3f} against the champion"))
    if evaluation.min_delta:
        checks.append(("delta_low95", f">= {evaluation.min_delta:g}{evaluation.unit}"))
    if evaluation.holdout is not None:
        checks.append(("holdout", "the same on held-out data"))
    width = max(len(name) for name, _ in checks) + 2
    return [f"{'CHECK':<{width}}EXPECTED", *(f"{name:<{width}}{what}" for name, what in checks)]


def _goal_flag(planned: PlannedContract) -> str:
    """Name the goal where a later command would not find it by itself."""
    context = click.get_current_context(silent=True)
    given = context is not None and context.params.get("goal_id")
    return f" --goal-id {planned.contract.context.goal_id}" if given else ""


def _refuse(reader: Reader, planned: PlannedContract, wanted: str) -> None:
    """Refuse a hash that is not the one of the contract as it is now.

    Raises:
        RefusedError: Always; it names what differs where the hash is that of the goal.
    """
    held = reader.goal().get("contract_hash", "")
    if held.startswith(wanted):
        void_if_changed(reader, contract_of(reader), planned)
    now = planned.contract_hash[:8]
    message = f"{wanted[:12]} is not the hash of {FILE} as it is now"
    raise RefusedError(
        message,
        reason="contract_changed",
        missing=f"the hash {now}",
        facts={
            "asked": wanted[:8],
            "now": f"{now}  at {planned.contract.base_commit[:12]}",
            "why": "the file, the commit or the protected files changed since it was shown",
        },
        mend=[["labmates", "plan"]],
    )


def _show_approved(planned: PlannedContract, who: str, *, new: bool, as_json: bool) -> None:
    goal_id, digest = planned.contract.context.goal_id, planned.contract_hash
    if as_json:
        document = {
            "goal_id": goal_id,
            "contract_hash": digest,
            "base_commit": planned.contract.base_commit,
            "approved": "now" if new else "before",
            "next": ["labmates", "up", "--goal-id", goal_id],
        }
        print_document(document)
        return
    if new:
        click.echo(f"{digest[:8]} approved by {who}: goal {goal_id}, base ", nl=False)
        click.echo(f"{planned.contract.base_commit[:12]}.")
    else:
        click.echo(f"{digest[:8]} was approved before, by {who}: goal {goal_id}. Nothing changed.")
    click.echo(f"Next: labmates up --goal-id {goal_id}")
