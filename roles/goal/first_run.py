"""Run the metric command once on the base commit, before anything is approved."""

import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import PreconditionError
from contracts.words import Split, StopReason
from roles.goal.contract_file import PlannedContract
from roles.measuring.measurement import Bench
from roles.measuring.rounds import Round
from roles.workspace.git import Git

_SEED = 1
_LINES = 4
_LINE_CHARS = 200


@dataclass(frozen=True)
class FirstRun:
    """A first run that gave a number.

    Attributes:
        duration_s: Wall clock of the command.
    """

    score: float
    duration_s: float
    command: str


def first_run(planned: PlannedContract) -> FirstRun:
    """Run `evaluation.dev` once in a fresh checkout, as the evaluator will.

    Raises:
        PreconditionError: It gave no number, a wrong one, never ended, or left processes; the
            facts hold what it printed.
    """
    contract = planned.contract
    folder = Path(tempfile.mkdtemp(prefix="labmates-first-run-"))
    try:
        bench = Bench(
            contract=contract,
            git=Git(planned.repository),
            scratch=folder,
            log_path=folder / "log",
            stop=lambda: False,
        )
        seed = _SEED if contract.evaluation.seed == "drawn" else None
        found = bench.round(contract.base_commit, Split.DEV, seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found.process.leftovers:
        message = "the metric command left processes behind"
        hint = "wait for them in the command; the ones named were ended"
        facts = {"left": "\n".join(found.process.leftovers[:10]), **_facts(found)}
        raise PreconditionError(message, facts=facts, hint=hint)
    if found.score is None:
        raise _no_score(planned, found)
    return FirstRun(found.score, found.process.duration_s, shlex.join(found.process.argv))


def _no_score(planned: PlannedContract, found: Round) -> PreconditionError:
    evaluation, process = planned.contract.evaluation, found.process
    facts = _facts(found)
    hint = ""
    if found.failure is StopReason.TIMEOUT:
        limit = planned.contract.environment.timeout_s
        message = f"the metric command had not ended after {limit:g} s"
        hint = "make it quicker, or raise environment.timeout_s"
    elif process.exit_code != 0:
        what = f"signal {process.signal}" if process.signal else f"exit code {process.exit_code}"
        message = f"the metric command failed with {what}"
        hint = "run it by hand; a score counts only with exit code 0"
    elif found.failure == "wrong":
        message = f"the metric command says that the base commit is wrong: {found.label}"
        hint = "the base commit must pass its own evaluation"
    elif evaluation.channel == "file":
        message = f"the metric command gave no score in $LABMATES_RESULT: {found.label}"
        hint = 'write {"pass": true, "score": NUMBER} there, or set evaluation.channel to "stdout"'
    elif found.label.startswith("no number"):
        message = "the metric command printed no number on stdout"
        hint = "print the number to stdout"
        if any(char.isdigit() for char in process.stderr):
            facts["why"] = "the last number on stdout is the score; this one is on stderr"
    else:
        message = f"the metric command printed no clear score: {found.label}"
        hint = 'print one plain number last, or one line: labmates: {"score": NUMBER}'
    return PreconditionError(message, facts=facts, hint=hint, tail="Nothing was written.")


def _facts(found: Round) -> dict[str, str]:
    process = found.process
    ended = f"exit code {process.exit_code}" if process.signal is None else f"{process.ended_by}"
    return {
        "command": f"{shlex.join(process.argv)}   ({ended}, {process.duration_s:.1f} s)",
        "stdout": _tail(process.stdout),
        "stderr": _tail(process.stderr),
    }


def _tail(text: str) -> str:
    lines = [line[:_LINE_CHARS] for line in text.rstrip().splitlines()]
    return "\n".join(lines[-_LINES:]) or "(empty)"
