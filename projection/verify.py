"""`verify`: derive the result again from the events alone, and check every one of them.

Three layers: the digest chain (was an event altered, removed, added?), replay (does each event obey
table, roster, fences and values?), and the derived state (does what the store acts on agree?).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from contracts.chain import verify_chains
from contracts.derived import Finding, differences, goal_findings
from contracts.replay import replay
from contracts.replay_state import GoalState, Violation, phase_of
from contracts.store.reader import Reader
from contracts.store.snapshot import SNAPSHOT_TRIES, Snapshot, read_derived, read_snapshot
from contracts.stored import DerivedState
from contracts.words import Phase
from projection.view import best_accepted, counts_of, improvements

SOUND, NOT_DONE, CONTRADICTION = 0, 1, 6


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
    """Verify a goal, its derived state included.

    Raises:
        UsageError: There is no such goal.
        StoreError: The store cannot be read.
    """
    for _ in range(SNAPSHOT_TRIES):
        snapshot = read_snapshot(reader)
        stored = read_derived(reader, snapshot)
        if stored is not None:
            return verify_snapshot(replace(snapshot, goal=stored.goal), stored)
    return verify_snapshot(read_snapshot(reader))


def verify_snapshot(snapshot: Snapshot, stored: DerivedState | None = None) -> Verification:
    """Verify what was read of a goal; pure.

    Args:
        snapshot: Of the goal.
        stored: Derived state of the same revision; without it the goal's hash alone is compared.
    """
    chain = verify_chains(snapshot.goal_id, snapshot.entries, snapshot.heads, snapshot.revision)
    state, found = replay(snapshot.goal_id, chain.events)
    violations = list(chain.violations)
    # Behind a break of the chain replay stumbles over what is missing; that names nothing new.
    first = min((each.revision for each in violations), default=None)
    violations += [each for each in found if first is None or each.revision < first]
    violations.sort(key=lambda each: (each.revision, each.stream, each.entry_id))
    whole = snapshot.heads is not None and not violations
    derived = goal_findings(state, snapshot.goal) if whole else []
    derived += differences(state, stored) if whole and stored is not None else []
    best = best_accepted(state)
    stats = {
        **counts_of(state),
        "events": sum(len(entries) for entries in snapshot.entries.values()),
        "revision": snapshot.revision,
        "derived_compared": whole and stored is not None,
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
