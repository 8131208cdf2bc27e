"""`verify`: derive the result again from the events alone, and check every one of them.

Three layers: the digest chain (was an event altered, removed, added?), replay (does each event obey
table, roster, fences and values?), and the derived state (does what the store acts on agree?).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from contracts.chain import verify_chains
from contracts.replay import replay
from contracts.replay_state import GoalState, Violation, phase_of
from contracts.store.reader import Reader
from contracts.words import Phase
from projection.reading import Snapshot, read_snapshot
from projection.view import best_accepted, counts_of, improvements

SOUND, NOT_DONE, CONTRADICTION = 0, 1, 6


@dataclass(frozen=True, slots=True)
class Finding:
    """A number against an expectation."""

    name: str
    actual: object
    expected: object
    passed: bool

    def to_json_dict(self) -> dict[str, object]:
        """Give the check as documents write it."""
        return {
            "name": self.name,
            "actual": self.actual,
            "expected": self.expected,
            "pass": self.passed,
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found."""

    goal_id: str
    state: GoalState
    phase: Phase | None
    violations: tuple[Violation, ...]
    derived: tuple[Finding, ...]
    progress: tuple[Finding, ...]
    stats: Mapping[str, Any]
    heads: Mapping[str, str]

    @property
    def sound(self) -> bool:
        """Whether no event breaks a rule and the derived state agrees."""
        return not self.violations and all(finding.passed for finding in self.derived)

    def exit_code(self, *, records_only: bool = False) -> int:
        """Give 0, 1 or 6 as the command line defines them."""
        if not self.sound:
            return CONTRADICTION
        return SOUND if records_only or self.phase == Phase.DONE else NOT_DONE

    def to_json_dict(self) -> dict[str, Any]:
        """Give the document of `verify --json`."""
        return {
            "goal_id": self.goal_id,
            "ok": self.sound,
            "phase": self.phase,
            "checks": [each.to_json_dict() for each in (*self.derived, *self.progress)],
            "stats": dict(self.stats),
            "violations": [asdict(each) for each in self.violations],
            "heads": dict(self.heads),
        }


def verify(reader: Reader) -> Verification:
    """Verify a goal.

    Raises:
        UsageError: There is no such goal.
        StoreError: The store cannot be read.
    """
    return verify_snapshot(read_snapshot(reader))


def verify_snapshot(snapshot: Snapshot) -> Verification:
    """Verify what was read of a goal; pure."""
    chain = verify_chains(snapshot.goal_id, snapshot.entries, snapshot.heads, snapshot.revision)
    state, found = replay(snapshot.goal_id, chain.events)
    violations = list(chain.violations)
    # Behind a break of the chain replay stumbles over what is missing; that names nothing new.
    first = min((each.revision for each in violations), default=None)
    violations += [each for each in found if first is None or each.revision < first]
    violations.sort(key=lambda each: (each.revision, each.stream, each.entry_id))
    whole = snapshot.heads is not None and not violations
    derived = _derived(state, snapshot) if whole else []
    best = best_accepted(state)
    stats = {
        **counts_of(state),
        "events": sum(len(entries) for entries in snapshot.entries.values()),
        "revision": snapshot.revision,
        "improvements": improvements(state),
        "champion_commit": state.champion.commit if state.champion else None,
        "best": best.spread.value if best else None,
        "best_low": best.spread.low if best else None,
        "best_high": best.spread.high if best else None,
    }
    return Verification(
        goal_id=snapshot.goal_id,
        state=state,
        phase=phase_of(state, snapshot.now),
        violations=tuple(violations),
        derived=tuple(derived),
        progress=tuple(_progress(state)),
        stats=stats,
        heads=chain.heads,
    )


def _same(name: str, stored: object, replayed: object) -> Finding:
    return Finding(name, stored, replayed, stored == replayed)


def _derived(state: GoalState, snapshot: Snapshot) -> list[Finding]:
    """Lay the derived state, which the store acts on, beside what the events give."""
    goal = snapshot.goal

    def number(name: str) -> int:
        text = goal.get(name, "") or "0"
        return int(text) if text.lstrip("-").isdigit() else -1

    champion = state.champion
    return [
        _same("revision", number("rev"), state.revision),
        _same("contract_hash", goal.get("contract_hash", ""), state.contract_hash),
        _same("approved", goal.get("status") == "approved", state.approved),
        _same(
            "champion_commit", goal.get("champion_commit", ""), champion.commit if champion else ""
        ),
        _same("champion_rev", number("champion_rev"), state.champion_revision),
        _same("target_met", goal.get("target_met") == "1", state.target_met),
        _same("live", number("live"), state.live),
        _same("attempts_used", number("attempts_used"), state.attempts_used),
        _same("attempts_reserved", number("attempts_reserved"), state.attempts_reserved),
        _same("holdouts", number("holdouts"), state.holdouts),
    ]


def _progress(state: GoalState) -> list[Finding]:
    """What `done` needs, each as a number against an expectation."""
    best = best_accepted(state)
    evaluation = state.contract.evaluation if state.contract else None
    target = evaluation.target if evaluation else None
    by_value = evaluation is not None and evaluation.target_by == "value"
    low = None
    if best is not None:
        maximize = evaluation is None or evaluation.direction == "maximize"
        low = best.spread.low if maximize else best.spread.high
    actual = best.spread.value if best and by_value else low
    sign = "<=" if evaluation and evaluation.direction == "minimize" else ">="
    expected = None if target is None else f"{sign} {target:g}"
    return [
        Finding("target", actual, expected, state.target_met),
        Finding("items_live", state.live, 0, state.live == 0),
    ]
