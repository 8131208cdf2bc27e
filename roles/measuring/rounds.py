"""Rounds: one run of the contract's command on a commit, in a checkout made for it.

The protected files of the approved base are laid over the commit, nothing that git does not list
comes along, and the score comes on the channel of the contract. A number is finite and within
bounds, or there is none; what the candidate failed at is told apart from what the machine did.

The result file lies in a folder whose name cannot be derived from anything that the candidate sees:
32 random digits, in a folder that cannot be listed. It is read once no process of the round lives,
and a round that left processes behind has no score, since they may have written it.
"""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from contracts.contract import ResearchContract
from contracts.errors import MachineError, UsageError
from contracts.words import Split, StopReason
from roles.measuring.command_line import argv_of
from roles.measuring.score import NoScore, parse_score
from roles.processes.process import EndedBy, ProcessOutcome, base_env, run
from roles.workspace.checkout import checkout_fresh
from roles.workspace.git import Git
from roles.workspace.worktree import remove_tree

RESULT_LIMIT_BYTES = 1_000_000
PROCESSES_LEFT = "processes left"
_STOPPED_BY = {
    EndedBy.TIMEOUT: StopReason.TIMEOUT,
    EndedBy.SILENCE: StopReason.SILENT,
    EndedBy.OUT_OF_MEMORY: StopReason.OUT_OF_MEMORY,
    EndedBy.SIGNAL: StopReason.CRASH,
}


class StoppedError(MachineError):
    """The lane was told to stop while a measurement ran."""

    code = "stopped"


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the command.

    Attributes:
        score: The number, or None.
        failure: Why there is none: `wrong` (the evaluator says the result is wrong) or the reason
            of an attempt without a score.
        label: What to show instead of a score.
        detail: What else the command said, such as the fields that must agree.
    """

    score: float | None
    failure: Literal["", "wrong"] | StopReason
    label: str
    process: ProcessOutcome
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Runs one contract's commands.

    Attributes:
        scratch: A folder of ours; every round gets a new one in it, removed afterwards.
        log_path: Where the raw output of all rounds goes.
        stop: Asked while a child runs; True ends the measurement with `StoppedError`.
        tell: Told of each pair, for people who watch.
    """

    contract: ResearchContract
    git: Git
    scratch: Path
    log_path: Path
    stop: Callable[[], bool]
    tell: Callable[[str], None] = field(default=lambda _text: None)

    def command(self, split: Split) -> list[str]:
        """Give the contract's command for a split, `python` being the contract's interpreter."""
        evaluation = self.contract.evaluation
        text = evaluation.dev if split is Split.DEV else (evaluation.holdout or "")
        return argv_of(text, python=self.contract.environment.python)

    def round(self, commit: str, split: Split, seed: int | None) -> Round:
        """Run the command once on a commit.

        Raises:
            StoppedError: The lane was told to stop.
            MachineError: The checkout could not be made.
        """
        self.scratch.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="round-", dir=self.scratch))
        try:
            with _result_file() as result:
                return self._round(folder, result, commit, split, seed)
        finally:
            remove_tree(folder)

    def _round(
        self, folder: Path, result: Path, commit: str, split: Split, seed: int | None
    ) -> Round:
        contract = self.contract
        base = contract.base_commit
        try:
            tree = checkout_fresh(
                self.git,
                commit,
                folder / "tree",
                base,
                contract.context.protected,
                scope_sha256=contract.protected_scope_sha256,
            )
        except UsageError as error:  # a link that leaves the tree, a name no file may have
            return Round(None, "wrong", error.message, _no_process())
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        extra = dict(contract.environment.env)
        extra |= {"PYTHONDONTWRITEBYTECODE": "1", "LABMATES_SPLIT": split}
        if contract.evaluation.channel == "file":
            extra["LABMATES_RESULT"] = str(result)
        if seed is not None:
            extra["LABMATES_SEED"] = str(seed)
        process = run(
            self.command(split),
            cwd=tree,
            env=base_env(extra, home=folder / "home", tmp=folder / "tmp"),
            timeout_s=contract.environment.timeout_s,
            log_path=self.log_path,
            stop=self.stop,
        )
        return self._judge(process, result, tree)

    def _judge(self, process: ProcessOutcome, result: Path, tree: Path) -> Round:  # noqa: PLR0911 - one return per way to fail
        if process.ended_by is EndedBy.STOPPED:
            message = "the measurement was stopped"
            raise StoppedError(message)
        if process.ended_by is EndedBy.TIMEOUT:
            limit = self.contract.environment.timeout_s
            return Round(None, StopReason.TIMEOUT, f"timeout {limit:g} s", process)
        if process.ended_by in _STOPPED_BY:
            reason = _STOPPED_BY[process.ended_by]
            return Round(None, reason, str(reason), process)
        if process.exit_code == 127:
            message = f"the evaluation command cannot be run: {process.argv[0]}"
            raise MachineError(message, facts={"stderr": process.stderr[-500:]})
        if process.leftovers:
            return Round(None, "wrong", PROCESSES_LEFT, process)
        found = parse_score(process.stdout, _read_result(result), self.contract.evaluation.channel)
        if isinstance(found, NoScore):
            return _no_score(found, process)
        if not process.ok:
            return Round(None, StopReason.CRASH, f"crash, exit code {process.exit_code}", process)
        if found.passed is False:
            return Round(None, "wrong", found.label or "failed", process)
        bounds = self.contract.evaluation.bounds
        if bounds is not None and not bounds[0] <= found.value <= bounds[1]:
            return Round(None, "wrong", f"out of bounds {found.value:g}", process)
        for name in self.contract.evaluation.required_artifacts:
            if not (tree / name).is_file():
                return Round(None, "wrong", f"no artifact {name}"[:60], process)
        return Round(found.value, "", "", process, found.detail)

    def guard(self, commit: str) -> tuple[bool, str]:
        """Run the contract's guard command on a commit; gives whether it passed, and its tail."""
        argv = argv_of(self.contract.evaluation.guard, python=self.contract.environment.python)
        self.scratch.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="guard-", dir=self.scratch))
        try:
            tree = checkout_fresh(
                self.git,
                commit,
                folder / "tree",
                self.contract.base_commit,
                self.contract.context.protected,
                scope_sha256=self.contract.protected_scope_sha256,
            )
            (folder / "home").mkdir()
            process = run(
                argv,
                cwd=tree,
                env=base_env(dict(self.contract.environment.env), home=folder / "home", tmp=folder),
                timeout_s=self.contract.environment.timeout_s,
                log_path=self.log_path,
                stop=self.stop,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if process.ended_by is EndedBy.STOPPED:
            message = "the guard was stopped"
            raise StoppedError(message)
        if process.leftovers:
            return False, f"{PROCESSES_LEFT}: {', '.join(process.leftovers)}"[:400]
        return process.ok, (process.stderr or process.stdout)[-400:]


@contextlib.contextmanager
def _result_file() -> Iterator[Path]:
    """Name a file that does not exist yet, where nobody looks for it; its folder goes afterwards.

    Raises:
        MachineError: The folder cannot be made.
    """
    try:
        outer = Path(tempfile.mkdtemp(prefix="labmates-"))
        folder = outer / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        outer.chmod(0o300)  # enter, but do not list
    except OSError as error:
        message = f"no folder for a result can be made: {error.strerror}"
        raise MachineError(message, facts={"in": tempfile.gettempdir()}) from error
    try:
        yield folder / "result.json"
    finally:
        if outer.is_dir():  # who runs as our user may have removed it
            remove_tree(outer)


def _read_result(path: Path) -> str | None:
    """Read a result; what is no regular file, or has a second name, is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(RESULT_LIMIT_BYTES).decode("utf-8", errors="replace")


def _no_score(found: NoScore, process: ProcessOutcome) -> Round:
    """Tell a result that is wrong from an attempt that gave none."""
    label = found.label or "no score"
    if label.startswith("timeout"):
        return Round(None, StopReason.TIMEOUT, label, process)
    if label.startswith("crash"):
        return Round(None, StopReason.CRASH, label, process)
    if not (process.ok or found.said):
        return Round(None, StopReason.CRASH, f"crash, exit code {process.exit_code}", process)
    if found.said:
        return Round(None, "wrong", label, process)
    return Round(None, StopReason.PARSE_ERROR, f"{label} {found.detail}".strip()[:120], process)


def _no_process() -> ProcessOutcome:
    return ProcessOutcome(
        argv=("checkout",),
        started_at=datetime.now(UTC),
        duration_s=0.0,
        exit_code=None,
        signal=None,
        ended_by=EndedBy.EXIT,
        stdout="",
        stderr="",
        output_bytes=0,
    )
