"""`labmates review` and `labmates assess`: what peers say of each other's work."""

import click

from contracts.canonical import canonical
from contracts.errors import UsageError
from contracts.events import parse_entry
from contracts.findings import Finding, dependence, finding_of, findings
from contracts.records import PeerReview
from contracts.replay import replay
from contracts.replay_state import GoalState, ItemState
from contracts.store.reader import Reader
from contracts.text import NONE, inert, table
from contracts.words import Stream
from roles.options import (
    agent_option,
    goal_options,
    open_goal,
    print_document,
    require_agent,
    say,
)

_VERDICTS = ("approve", "reject", "needs_more_evidence")
_OBSERVED = ("supports", "weakens", "falsifies")
_refs_option = click.option(
    "--evidence-ref", "refs", multiple=True, metavar="REF", help="What it rests on; repeatable."
)


@click.command("review")
@click.argument("target", metavar="[DECISION_OR_HYP]", default="")
@click.option("--verdict", type=click.Choice(_VERDICTS), help="Left out: show what is there.")
@click.option("--reason", default="", help="Why; needed with --verdict.")
@_refs_option
@agent_option
@goal_options
def review(
    target: str,
    *,
    verdict: str | None,
    reason: str,
    refs: tuple[str, ...],
    agent_id: str,
    goal_id: str,
    store: str,
    as_json: bool,
) -> None:
    """Review a terminal decision, or show decisions with their reviews and findings.

    Whether a review is independent is found anew on every read: the reviewer neither produced nor
    decided what it is on, and is on the roster.

    \b
    Examples:
      labmates review
      labmates review hyp_0004
      labmates review hyp_0004 --verdict approve --reason "the interval is clear" --agent-id curator-2
    """  # noqa: D301 - click's mark for lines that stay as they are
    opened = open_goal(goal_id, store=store)
    state = _replayed(opened.reader)
    if verdict is None:
        _show(state, target, as_json=as_json)
        return
    if not target or not reason.strip():
        message = "a review names a decision, and why"
        raise UsageError(message, hint="labmates review HYP --verdict ... --reason ...")
    who = require_agent(agent_id)
    item = _item(state, target)
    record = PeerReview.model_validate(
        {
            "decision_revision": item.ended_revision or max(1, state.revision),
            "evidence_revision": item.touched,
            "verdict": verdict,
            "reason": reason,
            "evidence_refs": refs,
            "independent": not dependence(state, item, who),
        }
    )
    hypothesis_id = item.hypothesis_id or ""
    revision, fresh = opened.writer.review(
        agent_id=who,
        hypothesis_id=hypothesis_id,
        decision=item.ended_revision,
        body=canonical({"review": record.to_json_dict()}),
    )
    after = _replayed(opened.reader)
    found = finding_of(after, after.items[item.todo_id])
    mine = [each for each in found.reviews if each.revision == revision] if found else []
    independent = bool(mine and mine[0].independent)
    document = {
        "hypothesis_id": hypothesis_id,
        "decision_revision": item.ended_revision,
        "revision": revision,
        "verdict": verdict,
        "reused": not fresh,
        "independent": independent,
        "why_not": mine[0].why_not if mine else "",
        "finding": found.status if found else None,
    }
    done = f"{hypothesis_id}: {verdict} by {who} at rev {revision}"
    text = done if fresh else f"{done}, which was there already"
    if mine and not independent:
        text += f"; not independent: {who} {mine[0].why_not}"
    if found:
        text += f"\nThe finding is {found.status}: {found.why}."
    say(document, text, as_json=as_json)


@click.command("assess")
@click.argument("hypothesis_id", metavar="HYP")
@click.argument("verdict", type=click.Choice(_OBSERVED))
@click.option("--ref", "refs", multiple=True, required=True, help="What was seen; repeatable.")
@click.option("--reason", required=True, help="Why.")
@agent_option
@goal_options
def assess(
    hypothesis_id: str,
    verdict: str,
    *,
    refs: tuple[str, ...],
    reason: str,
    agent_id: str,
    goal_id: str,
    store: str,
    as_json: bool,
) -> None:
    """Put an observation on record that supports, weakens or falsifies a hypothesis.

    By proposers only. It makes void what was signed on the item before, and a finding stale.

    \b
    Example:
      labmates assess hyp_0004 weakens --ref attempt:7 --reason "slower on odd sizes" \\
        --agent-id proposer-1
    """  # noqa: D301 - click's mark for lines that stay as they are
    if not reason.strip():
        message = "an assessment needs a reason"
        raise UsageError(message)
    who = require_agent(agent_id)
    opened = open_goal(goal_id, store=store)
    revision, fresh = opened.writer.assess(
        agent_id=who,
        hypothesis_id=hypothesis_id,
        body=canonical({"verdict": verdict, "refs": list(refs), "note": reason}),
    )
    document = {
        "hypothesis_id": hypothesis_id,
        "verdict": verdict,
        "revision": revision,
        "reused": not fresh,
    }
    text = f"{hypothesis_id}: {refs[0]} {verdict} it, at rev {revision}"
    say(document, text + ("" if fresh else ", which was there already"), as_json=as_json)


def _replayed(reader: Reader) -> GoalState:
    """Replay the goal; entries that are no event of ours are left to `labmates verify`."""
    found = []
    for stream in Stream:
        for entry_id, fields in reader.entries(stream):
            try:
                found.append(parse_entry(reader.goal_id, stream, entry_id, fields))
            except (ValueError, KeyError):
                continue
    found.sort(key=lambda event: event.revision)
    return replay(reader.goal_id, found)[0]


def _item(state: GoalState, target: str) -> ItemState:
    """Find the item of a hypothesis, or of the decision at a revision."""
    digits = target.removeprefix("decision:")
    for item in state.hypothesis_items():
        ended = item.ended_revision and str(item.ended_revision) == digits
        if item.hypothesis_id == target or ended:
            return item
    known = ", ".join(f"{each.hypothesis_id}" for each in findings(state)) or "none"
    message = f"there is no hypothesis or decision {target!r} in {state.goal_id}"
    raise UsageError(message, facts={"decided": known}, mend=[["labmates", "review"]])


def _show(state: GoalState, target: str, *, as_json: bool) -> None:
    chosen = _item(state, target) if target else None
    listed = [finding_of(state, chosen)] if chosen else list(findings(state))
    found = [each for each in listed if each is not None]
    if as_json:
        document = {
            "goal_id": state.goal_id,
            "revision": state.revision,
            "findings": [_document(each) for each in found],
        }
        print_document(document)
        return
    if not found:
        what = f"{target} has no decision that could be found on" if target else "no decision yet"
        click.echo(what)
        return
    rows = [
        (
            inert(each.hypothesis_id),
            str(each.decision_revision),
            inert(each.outcome),
            str(each.status),
            inert(each.why),
        )
        for each in found
    ]
    click.echo("\n".join(table(("HYPOTHESIS", "DECISION", "END", "FINDING", "WHY"), rows)))
    for each in found if target else []:
        for one in each.reviews:
            own = "independent" if one.independent else f"not independent, {one.why_not}"
            late = "" if one.current else ", taken back by a later one"
            refs = f" ({', '.join(map(inert, one.evidence_refs))})" if one.evidence_refs else ""
            click.echo(
                f"\nrev {one.revision}  {inert(one.reviewer)}: {one.verdict}, {own}{late}\n"
                f"  {inert(one.reason) or NONE}{refs}"
            )


def _document(found: Finding) -> dict[str, object]:
    return {
        "hypothesis_id": found.hypothesis_id,
        "decision_revision": found.decision_revision,
        "outcome": found.outcome,
        "end_reason": found.end_reason,
        "status": found.status,
        "why": found.why,
        "reviews": [
            {
                "revision": one.revision,
                "reviewer": one.reviewer,
                "verdict": one.verdict,
                "reason": one.reason,
                "evidence_refs": list(one.evidence_refs),
                "independent": one.independent,
                "why_not": one.why_not or None,
                "current": one.current,
            }
            for one in found.reviews
        ],
    }
