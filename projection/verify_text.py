"""What `verify` found, as text."""

from contracts.derived import Finding
from contracts.text import NONE, inert, score, with_interval
from contracts.words import Phase
from projection.verify import Verification


def verification_lines(found: Verification) -> list[str]:
    """Say whether the records are sound and the goal done, and name each event that is not."""
    stats = found.stats
    phase = found.phase or "unapproved"
    if not found.sound:
        return _contradictions(found)
    word = "done" if found.phase == Phase.DONE else f"not done ({phase})"
    best = stats["best"]
    number = NONE
    if best is not None:
        number = with_interval(best, stats["best_low"], stats["best_high"])
    counted = ", ".join(
        f"{stats[name]} {name}" for name in ("hypotheses", "attempts", "promoted", "retired")
    )
    lines = [
        f"sound, {word}: {stats['events']} events, revision {stats['revision']}",
        "",
        f"best       {number}, derived again from the records",
        f"champion   {stats['champion_commit'] or NONE}",
        f"counted    {counted}",
    ]
    lines += [_finding(each) for each in found.progress if each.expected is not None]
    if not stats["derived_compared"]:
        lines.append("derived    not compared: the goal was written during every try")
    lines += ["", "Heads, to keep elsewhere:"]
    lines += [f"{stream:<10} {head}" for stream, head in sorted(found.heads.items())]
    if found.phase != Phase.DONE:
        lines += ["", "next       labmates status"]
    return lines


def _finding(each: Finding) -> str:
    actual = NONE if each.actual is None else each.actual
    shown = score(actual) if isinstance(actual, float) else str(actual)
    word = "pass" if each.passed else "fail"
    return f"{each.name:<10} {shown}, expected {each.expected}: {word}"


def _shown(value: object) -> str:
    """Show a value on one line; nothing is shown as such."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return inert(value) if value not in {"", None} else "empty"


def _contradictions(found: Verification) -> list[str]:
    derived = [each for each in found.derived if not each.passed]
    count = len(found.violations) + len(derived)
    lines = [f"the records contradict themselves: {count} finding{'s' if count != 1 else ''}", ""]
    for each in found.violations:
        where = f"{each.stream} {inert(each.entry_id)}".strip() or "all streams"
        lines.append(f"rev {each.revision:<6} {where}  {inert(each.type)}".rstrip())
        lines.append(f"           {inert(each.what)}")
    lines += [
        f"derived: {inert(each.name)} is {_shown(each.actual)}, the events say "
        f"{_shown(each.expected)}"
        for each in derived
    ]
    return lines
