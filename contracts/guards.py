"""What must be there before an item moves: one check per name in the rows of the table.

Theory of operation. `first_missing(rule, ctx)` walks a row's records, guards and evidence names in
their order and says the first thing that is missing, or None. Records and guards are the store's
part too (same names, same words; a property test holds both together); evidence names are checked
here alone: before a call by whoever makes it, and again on every replay. Everything is pure over
the replayed goal and item and the records of the call; nothing is looked up elsewhere.

Deliberately not here: claims and fences (`contracts.replay`), and who may write a move alone,
which the row itself says (`refusal` puts all of it together).
"""

from collections.abc import Callable

from contracts.evidence_checks import EVIDENCE_CHECKS, holdout_problem
from contracts.guard_context import (
    Context,
    Missing,
    holdout_of,
    holdout_passes,
    retries_left,
    start_of,
)
from contracts.replay_state import is_closed
from contracts.transitions import GUARDS, Rule, find_rule
from contracts.words import EventType, Role, State, Verdict

__all__ = [
    "EVIDENCE_CHECKS",
    "GUARD_CHECKS",
    "Context",
    "Missing",
    "first_missing",
    "holdout_passes",
    "holdout_problem",
    "refusal",
    "store_missing",
    "verdict_targets",
]


def _base_current(ctx: Context) -> bool:
    start = start_of(ctx)
    base = start.base_revision if start else ctx.item.base_revision
    return base > 0 and base == ctx.goal.champion_revision


GUARD_CHECKS: dict[str, Callable[[Context], bool]] = {
    "approved": lambda ctx: ctx.goal.approved,
    "not_paused": lambda ctx: not ctx.goal.paused,
    "not_closed": lambda ctx: not is_closed(ctx.goal, ctx.at),
    "not_doomed": lambda ctx: not ctx.item.doomed,
    "reserved": lambda ctx: ctx.item.reserved,
    "base_current": _base_current,
    "base_moved": lambda ctx: ctx.item.base_revision != ctx.goal.champion_revision,
    "unattempted": lambda ctx: ctx.item.attempt is None,
    "attempted": lambda ctx: ctx.item.attempt is not None,
    "confirmation_wanted": lambda ctx: ctx.item.wants_confirm != "",
    "no_confirmation_wanted": lambda ctx: ctx.item.wants_confirm == "",
    "evidence": lambda ctx: ctx.item.evidence_revision > 0,
    "evaluation": lambda ctx: ctx.item.evaluation_revision > 0,
    "holdout": lambda ctx: (
        not ctx.goal.holdout_required
        or ctx.item.holdout_revision > 0
        or EventType.HOLDOUT_RECORDED in ctx.records
    ),
    "holdout_passed": lambda ctx: (
        not ctx.goal.holdout_required
        or (ctx.item.holdout_revision > 0 and holdout_passes(holdout_of(ctx), ctx.goal))
    ),
    "holdout_not_required": lambda ctx: not ctx.goal.holdout_required,
    "owner_accepted": lambda ctx: (
        ctx.goal.contract is not None
        and (not ctx.goal.contract.policy.owner_gate or ctx.item.owner_accepted)
    ),
    "retries_left": retries_left,
}


def store_missing(rule: Rule, ctx: Context) -> Missing | None:
    """Say what the store would refuse of a row's records and guards, in its words."""
    if rule.signers is None:
        for kind in rule.records:
            if kind not in ctx.records:
                return Missing("missing_record", f"the record {kind}")
        for kind in sorted(ctx.records):
            if kind not in rule.records and kind not in rule.may:
                return Missing("foreign_record", f"a row that carries {kind}")
    for name in rule.guards:
        if not GUARD_CHECKS[name](ctx):
            return Missing(name, GUARDS[name])
    return None


def first_missing(rule: Rule, ctx: Context) -> str | None:
    """Say the first thing a row asks for that is not there: records, guards, then evidence."""
    refused = store_missing(rule, ctx)
    if refused is not None:
        return refused.what
    for name in rule.evidence:
        if problem := EVIDENCE_CHECKS[name](ctx):
            return problem
    return None


def refusal(ctx: Context, target: State, role: Role) -> Missing | None:
    """Say why the store refuses a role's own move of an item, or None if it makes it."""
    state = ctx.item.state
    rule = find_rule(State(state), target, signed=False) if state in set(State) else None
    if rule is None:
        return Missing("no_such_transition", f"a row {state}>{target} in the table")
    found = store_missing(rule, ctx)
    if found is None and role not in {str(writer) for writer in rule.writers}:
        return Missing("not_writer", f"the role {rule.writers[0]}")
    if found is None and EventType.HYPOTHESIS_ADDED in rule.records:
        return Missing("by_proposal", "a proposal, which makes an item of its own")
    return found


def verdict_targets(verdict: Verdict, *, holdout_required: bool) -> tuple[State, ...]:
    """Give the states an evaluation's verdict may lead to, best first (the outcome rules)."""
    if verdict == Verdict.IMPROVED:
        best = (State.SUPPORTED,)
        return best if holdout_required else (*best, State.PROMOTION_GATE)
    if verdict == Verdict.FLAT:
        return (State.RETIRED,)
    if verdict == Verdict.UNSCORED:
        return (State.NEEDS_RETRY,)
    if verdict == Verdict.GUARD:
        return (State.NEEDS_RETRY, State.CONTRADICTED)
    return (State.CONTRADICTED,)
