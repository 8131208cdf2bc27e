"""THE transition table: who may move an item from where to where, on what evidence.

Theory of operation. An item is in one of twelve durable states and moves only along a row of
`TABLE`. A row names the writers that may make the move (one role, or the selection itself, written
`quota`), or the two roles whose signatures make it together, first and second in this order. It
names the records that must stand in the same atomic call, the guards that the store checks on its
derived state, and the evidence that `contracts.guards` checks in Python before the call and again
on every replay. The store's own table (`lua_table`), the diagram of the docs (`mermaid`) and the
test ids are rendered from here; nothing is typed twice. What a row does not name is refused.

Deliberately not here: claims (any row needs the live claim and its fence), gates (no row out of a
gated item but delivery, `GATED_ROWS`), pause and budgets (they act on claims and starts only).

Source: `design/state-machine.md`, the table and its rulings.
"""

from dataclasses import dataclass

from contracts.words import EventType, Role, State, Writer


@dataclass(frozen=True, slots=True)
class Rule:
    """One row.

    Attributes:
        source: The state before.
        target: The state after.
        writers: Who may make the move alone; empty for rows of two signatures.
        signers: First and second role, for rows of two signatures.
        records: Events that must stand in the same call.
        may: Events that may stand in it besides.
        guards: Named conditions on the item and the goal that the store checks, in this order.
        evidence: Names that `contracts.guards` looks for in the records, in this order.
    """

    source: State
    target: State
    writers: tuple[Writer, ...] = ()
    signers: tuple[Role, Role] | None = None
    records: tuple[EventType, ...] = ()
    may: tuple[EventType, ...] = ()
    guards: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[State, State]:
        """The two states."""
        return self.source, self.target


_S, _W, _R, _E = State, Writer, Role, EventType
_EVALUATOR_FIRST = (_R.EVALUATOR, _R.PROPOSER)
_PROPOSER_FIRST = (_R.PROPOSER, _R.EVALUATOR)

# What each guard says when it fails; the same words come from the store.
GUARDS: dict[str, str] = {
    "approved": "an approved contract",
    "not_paused": "a goal that is not paused",
    "not_closed": "a goal that still takes attempts",
    "not_doomed": "an item the operator has not refused",
    "reserved": "a reserved attempt and lane",
    "base_current": "a base that is the champion of now",
    "base_moved": "a champion that moved since the item's base",
    "unattempted": "an item without an attempt (else two signatures)",
    "attempted": "an item with an attempt (else the proposer alone)",
    "confirmation_wanted": "a confirmation that the evaluator asked for",
    "no_confirmation_wanted": "no confirmation left to wait for",
    "evidence": "the evidence of this attempt",
    "evaluation": "the evaluation of this attempt",
    "holdout": "the held-out record of this attempt",
    "holdout_passed": "a held-out record that passes",
    "holdout_not_required": "a contract without a held-out split",
    "owner_accepted": "the owner gate, accepted",
    "retries_left": "retries left",
}

TABLE: tuple[Rule, ...] = (
    Rule(
        _S.CONTRACT_READY,
        _S.HYPOTHESIS_PROPOSED,
        writers=(_W.PROPOSER,),
        records=(_E.HYPOTHESIS_ADDED,),
        guards=("approved", "not_closed"),
        evidence=("mechanism_family", "grounding"),
    ),
    Rule(
        _S.HYPOTHESIS_PROPOSED,
        _S.FRONTIER_SELECTED,
        writers=(_W.QUOTA,),
        guards=("not_paused", "not_closed", "not_doomed"),
    ),
    Rule(
        _S.HYPOTHESIS_PROPOSED,
        _S.RETIRED,
        writers=(_W.PROPOSER,),
        guards=("unattempted",),
        evidence=("retirement_reason",),
    ),
    Rule(
        _S.FRONTIER_SELECTED,
        _S.ATTEMPT_RUNNING,
        writers=(_W.EXECUTOR,),
        records=(_E.ATTEMPT_STARTED,),
        guards=("not_paused", "not_closed", "not_doomed", "reserved", "base_current"),
        evidence=("worktree", "base_commit", "scope_sha256"),
    ),
    Rule(_S.FRONTIER_SELECTED, _S.HYPOTHESIS_PROPOSED, writers=(_W.QUOTA,)),
    Rule(_S.FRONTIER_SELECTED, _S.NEEDS_RETRY, writers=(_W.QUOTA,)),
    Rule(
        _S.ATTEMPT_RUNNING,
        _S.EVIDENCE_RECORDED,
        writers=(_W.EXECUTOR,),
        records=(_E.EVIDENCE_RECORDED,),
        evidence=(
            "split",
            "metric_status",
            "code_ref",
            "protected_scope_clean",
            "raw_logs_recorded",
            "private_artifacts_recorded",
            "process_manifest",
        ),
    ),
    Rule(
        _S.ATTEMPT_RUNNING,
        _S.NEEDS_RETRY,
        writers=(_W.EXECUTOR, _W.QUOTA),
        records=(_E.RETRY_RECORDED,),
        evidence=("stop_reason", "attempt_number", "retry_ref_or_reason"),
    ),
    Rule(
        _S.EVIDENCE_RECORDED,
        _S.EVALUATED,
        writers=(_W.EVALUATOR,),
        records=(_E.EVALUATION_RECORDED,),
        guards=("evidence",),
        evidence=("dev_measurement", "checks", "measured_commit"),
    ),
    Rule(
        _S.EVALUATED,
        _S.SUPPORTED,
        writers=(_W.EVALUATOR,),
        guards=("not_doomed", "evaluation"),
        evidence=("dev_checks_pass",),
    ),
    Rule(
        _S.EVALUATED,
        _S.CONTRADICTED,
        writers=(_W.EVALUATOR,),
        guards=("not_doomed", "evaluation"),
        evidence=("failure_by_name",),
    ),
    Rule(
        _S.EVALUATED,
        _S.NEEDS_RETRY,
        writers=(_W.EVALUATOR,),
        guards=("not_doomed", "evaluation"),
        evidence=("unscored", "retry_reason"),
    ),
    Rule(
        _S.EVALUATED,
        _S.PROMOTION_GATE,
        writers=(_W.EVALUATOR,),
        guards=("not_doomed", "evaluation", "base_current", "holdout_not_required"),
        evidence=("dev_checks_pass", "clean_boundary"),
    ),
    Rule(
        _S.EVALUATED,
        _S.RETIRED,
        signers=_EVALUATOR_FIRST,
        guards=("evaluation",),
        evidence=("flat_or_refused",),
    ),
    Rule(
        _S.SUPPORTED,
        _S.PROMOTION_GATE,
        writers=(_W.EVALUATOR,),
        may=(_E.HOLDOUT_RECORDED,),
        guards=("not_doomed", "no_confirmation_wanted", "base_current", "holdout"),
        evidence=("holdout_or_none_required",),
    ),
    Rule(
        _S.SUPPORTED,
        _S.ATTEMPT_RUNNING,
        writers=(_W.EXECUTOR,),
        records=(_E.ATTEMPT_STARTED,),
        guards=(
            "not_paused",
            "not_closed",
            "not_doomed",
            "confirmation_wanted",
            "reserved",
            "base_current",
        ),
        evidence=("worktree", "base_commit", "scope_sha256", "confirmation_reason"),
    ),
    Rule(
        _S.SUPPORTED,
        _S.RETIRED,
        signers=_EVALUATOR_FIRST,
        guards=("evaluation",),
        evidence=("retirement_reason",),
    ),
    Rule(
        _S.NEEDS_RETRY,
        _S.FRONTIER_SELECTED,
        writers=(_W.QUOTA,),
        guards=("not_paused", "not_closed", "not_doomed", "retries_left"),
    ),
    Rule(
        _S.CONTRADICTED,
        _S.HYPOTHESIS_PROPOSED,
        writers=(_W.PROPOSER,),
        records=(_E.HYPOTHESIS_ADDED,),
        guards=("not_closed", "not_doomed"),
        evidence=("mechanism_family", "grounding", "changed_mechanism", "cites_negative"),
    ),
    Rule(
        _S.CONTRADICTED,
        _S.RETIRED,
        signers=_PROPOSER_FIRST,
        evidence=("retirement_reason",),
    ),
    Rule(
        _S.NEEDS_RETRY,
        _S.RETIRED,
        signers=_PROPOSER_FIRST,
        evidence=("retirement_reason",),
    ),
    Rule(
        _S.HYPOTHESIS_PROPOSED,
        _S.RETIRED,
        signers=_PROPOSER_FIRST,
        guards=("attempted",),
        evidence=("retirement_reason",),
    ),
    Rule(
        _S.PROMOTION_GATE,
        _S.PROMOTED,
        signers=(_R.EVALUATOR, _R.CURATOR),
        guards=("not_doomed", "base_current", "holdout_passed", "owner_accepted"),
        evidence=("holdout_passed", "clean_boundary", "terminal_decision"),
    ),
    Rule(
        _S.PROMOTION_GATE,
        _S.SUPPORTED,
        writers=(_W.EVALUATOR,),
        guards=("not_doomed", "base_moved"),
    ),
    Rule(
        _S.PROMOTION_GATE,
        _S.RETIRED,
        signers=_EVALUATOR_FIRST,
        evidence=("retirement_reason",),
    ),
)

GUARD_REWORKS = 2
"""How often an attempt that improves and fails the guard may be reworked."""

# A gate on the item refuses every row but these: what was started may always be delivered.
GATED_ROWS = (
    (_S.ATTEMPT_RUNNING, _S.EVIDENCE_RECORDED),
    (_S.ATTEMPT_RUNNING, _S.NEEDS_RETRY),
    (_S.FRONTIER_SELECTED, _S.HYPOTHESIS_PROPOSED),
    (_S.FRONTIER_SELECTED, _S.NEEDS_RETRY),
)


def rules(source: State, target: State) -> tuple[Rule, ...]:
    """Find the rows between two states: none, one, or one alone and one of two signatures."""
    return tuple(rule for rule in TABLE if rule.key == (source, target))


def find_rule(source: State, target: State, *, signed: bool) -> Rule | None:
    """Find the one row between two states that is of two signatures, or is not."""
    for rule in rules(source, target):
        if (rule.signers is not None) == signed:
            return rule
    return None


def lua_table() -> str:
    """Render the table as Lua literals for the head of the function library."""

    def names(values: tuple[str, ...]) -> str:
        return "{" + ",".join(f'"{value}"' for value in values) + "}"

    lines = [f"local GUARD_REWORKS = {GUARD_REWORKS}", "local RULES = {"]
    for rule in TABLE:
        name = ("sign:" if rule.signers else "move:") + f"{rule.source}>{rule.target}"
        lines.append(
            f'  ["{name}"] = {{writers={names(rule.writers)}, signers={names(rule.signers or ())}, '
            f"records={names(rule.records)}, may={names(rule.may)}, guards={names(rule.guards)}}},"
        )
    lines.append("}")
    lines.append("local GATED = {")
    lines.extend(f'  ["{source}>{target}"] = true,' for source, target in GATED_ROWS)
    lines.append("}")
    lines.append("local GUARD_TEXT = {")
    lines.extend(f'  ["{name}"] = "{text}",' for name, text in GUARDS.items())
    lines.append("}")
    return "\n".join(lines) + "\n"


def mermaid() -> str:
    """Render the diagram of the docs."""
    lines = ["stateDiagram-v2", "  [*] --> contract_ready"]
    for rule in TABLE:
        who = " + ".join(rule.signers) if rule.signers else " or ".join(rule.writers)
        lines.append(f"  {rule.source} --> {rule.target}: {who}")
    lines.extend(("  promoted --> [*]", "  retired --> [*]"))
    return "\n".join(lines) + "\n"
