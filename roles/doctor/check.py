"""One check of the doctor: what was looked at, what was found, and what mends it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Argv = Sequence[str]


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    FOUND = "found"
    MENDED = "mended"
    MISSING = "missing"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor.

    Attributes:
        about: The goal, or `store`, or `machine`.
        name: What was looked at.
        says: What was found, in a few words.
        mend: The command that mends it, where one does.
    """

    about: str
    name: str
    outcome: Outcome
    says: str
    mend: tuple[str, ...] = ()

    def to_json_dict(self) -> dict[str, object]:
        """Give the check as `doctor --json` writes it."""
        return {
            "about": self.about,
            "name": self.name,
            "outcome": str(self.outcome),
            "says": self.says,
            "mend": list(self.mend),
        }


def ok(about: str, name: str, says: str) -> Check:
    """Say that nothing is wrong."""
    return Check(about, name, Outcome.OK, says)


def found(about: str, name: str, says: str, mend: Argv = (), *, mended: bool = False) -> Check:
    """Say what is wrong and can be mended, or was mended just now."""
    outcome = Outcome.MENDED if mended else Outcome.FOUND
    return Check(about, name, outcome, says, () if mended else tuple(mend))


def missing(about: str, name: str, says: str, mend: Argv = ()) -> Check:
    """Say what must be there first."""
    return Check(about, name, Outcome.MISSING, says, tuple(mend))


def alarm(about: str, name: str, says: str, mend: Argv = ()) -> Check:
    """Say that the records contradict themselves; nothing mends that."""
    return Check(about, name, Outcome.ALARM, says, tuple(mend))


def some(names: Iterable[object], limit: int = 3) -> str:
    """List the first of some names, and how many more there are."""
    listed = [str(each) for each in names]
    rest = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + rest


def exit_code(checks: Iterable[Check]) -> int:
    """Give 6 for an alarm, else 5 for what is missing, else 1 for what was found, else 0."""
    outcomes = {each.outcome for each in checks}
    for outcome, code in ((Outcome.ALARM, 6), (Outcome.MISSING, 5), (Outcome.FOUND, 1)):
        if outcome in outcomes:
            return code
    return 0
