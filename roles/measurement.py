"""Measure a commit: rounds in fresh checkouts, champion and candidate in interleaved pairs.

One round is one run of the contract's command in a checkout that was made for it, with the
protected files of the approved base laid over the commit. The score comes on the channel of the
contract; a number is finite and within bounds, or there is none. The candidate's failure is told
apart from the champion's: a champion that gives no score is the machine's fault.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from contracts import records
from contracts.contract import ResearchContract
from contracts.errors import MachineError, UsageError
from contracts.words import EvalStatus, MetricStatus, Split, StopReason
from roles import paired
from roles.checkout import checkout_fresh
from roles.command_line import argv_of
from roles.git import Git
from roles.process import EndedBy, ProcessOutcome, base_env, run
from roles.score import NoScore, parse_score
from roles.worktree import remove_tree

RESULT_LIMIT_BYTES = 1_000_000
_DECIDED = {
    "improved": MetricStatus.IMPROVED,
    "flat": MetricStatus.FLAT,
    "regressed": MetricStatus.REGRESSED,
}
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
    """

    score: float | None
    failure: Literal["", "wrong"] | StopReason
    label: str
    process: ProcessOutcome


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement as a record, and the failure that ended it, if one did."""

    measurement: records.Measurement
    failure: Literal["", "wrong"] | StopReason = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs rounds for one contract.

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
            return self._round(folder, commit, split, seed)
        finally:
            remove_tree(folder)

    def _round(self, folder: Path, commit: str, split: Split, seed: int | None) -> Round:
        contract = self.contract
        base = contract.base_commit
        try:
            tree = checkout_fresh(
                self.git, commit, folder / "tree", base, contract.context.protected
            )
        except UsageError as error:  # a link that leaves the tree, a name no file may have
            return Round(None, "wrong", error.message, _no_process())
        result = folder / "out" / "result.json"
        for name in ("home", "tmp", "out"):
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
        return self._judge(process, result)

    def _judge(self, process: ProcessOutcome, result: Path) -> Round:
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
        text = None
        if result.is_file() and not result.is_symlink():
            with result.open(encoding="utf-8", errors="replace") as stream:
                text = stream.read(RESULT_LIMIT_BYTES)
        found = parse_score(process.stdout, text, self.contract.evaluation.channel)
        if isinstance(found, NoScore):
            return _no_score(found, process)
        if not process.ok:
            return Round(None, StopReason.CRASH, f"exit code {process.exit_code}", process)
        if found.passed is False:
            return Round(None, "wrong", found.label or "failed", process)
        bounds = self.contract.evaluation.bounds
        if bounds is not None and not bounds[0] <= found.value <= bounds[1]:
            return Round(None, "wrong", f"out of bounds {found.value:g}", process)
        return Round(found.value, "", "", process)

    def alone(self, commit: str, split: Split) -> Measured:
        """Measure one commit by itself, as the baseline is.

        Raises:
            MachineError: A round gave no score.
        """
        rounds: list[Round] = []
        seeds: list[int] = []
        for number in range(self.contract.evaluation.pairs):
            seed = self._seed(seeds)
            rounds.append(self._need(self.round(commit, split, seed)))
            self.tell(f"{split}, round {number + 1} of {self.contract.evaluation.pairs}")
        scores = [found.score for found in rounds if found.score is not None]
        measurement = records.Measurement(
            split=split,
            commit=commit,
            eval_status=EvalStatus.SCORED,
            primary_metric_status=MetricStatus.FLAT,
            value=paired.summary(scores).value,
            spread=_spread(paired.summary(scores)),
            samples=records.Samples(candidate=tuple(scores), seeds=tuple(seeds)),
            manifest=self._manifest(rounds, commit),
        )
        return Measured(measurement)

    def against(
        self, commit: str, champion: str, split: Split, *, hypothesis_id: str | None, revision: int
    ) -> Measured:
        """Measure a candidate against the champion, in interleaved pairs with shared seeds.

        The first round in which the candidate gives no score ends the measurement.

        Raises:
            MachineError: The champion gave no score.
            StoppedError: The lane was told to stop.
        """
        evaluation = self.contract.evaluation
        scores: dict[str, list[float]] = {"A": [], "B": []}
        rounds: list[Round] = []
        seeds: list[int] = []
        failed: Round | None = None
        for number, side in enumerate(paired.schedule(evaluation.pairs)):
            seed = self._seed(seeds) if number % 2 == 0 else (seeds[-1] if seeds else None)
            if side == "A":
                found = self._need(self.round(champion, split, seed))
            else:
                found = self.round(commit, split, seed)
                rounds.append(found)
            if found.score is None:
                failed = found
                break
            scores[side].append(found.score)
            if number % 2:
                self.tell(f"{split}, pair {number // 2 + 1} of {evaluation.pairs}")
        shared = {
            "split": split,
            "commit": commit,
            "against_commit": champion,
            "against_hypothesis_id": hypothesis_id,
            "against_revision": revision,
            "manifest": self._manifest(rounds, commit),
        }
        samples = records.Samples(
            champion=tuple(scores["A"]), candidate=tuple(scores["B"]), seeds=tuple(seeds)
        )
        if failed is not None:
            status = (
                EvalStatus.GUARDRAIL_FAILED
                if failed.failure == "wrong"
                else EvalStatus.FAILED_TO_RUN
            )
            measurement = records.Measurement(
                **shared,
                eval_status=status,
                primary_metric_status=MetricStatus.FAILED,
                label=failed.label,
                samples=samples,
            )
            return Measured(measurement, failed.failure)
        comparison = paired.compare(scores["B"], scores["A"], evaluation.direction.value)
        decided = paired.decide(
            comparison, min_gain=evaluation.min_gain, min_delta=evaluation.min_delta
        )
        own = paired.summary(scores["B"])
        measurement = records.Measurement(
            **shared,
            eval_status=EvalStatus.SCORED,
            primary_metric_status=_DECIDED[decided],
            value=own.value,
            spread=_spread(own),
            ratio=_spread(comparison.ratio) if comparison.ratio else None,
            difference=_spread(comparison.difference),
            samples=samples,
        )
        return Measured(measurement)

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
        return process.ok, (process.stderr or process.stdout)[-400:]

    def _seed(self, seeds: list[int]) -> int | None:
        if self.contract.evaluation.seed != "drawn":
            return None
        seeds.append(secrets.randbelow(2**31))
        return seeds[-1]

    def _need(self, found: Round) -> Round:
        if found.score is None:
            message = "the champion gave no score, so nothing can be measured against it"
            facts = {"label": found.label, "stderr": found.process.stderr[-400:]}
            raise MachineError(message, facts=facts)
        return found

    def _manifest(self, rounds: list[Round], commit: str) -> records.ProcessManifest | None:
        if not rounds:
            return None
        last = rounds[-1].process
        return records.ProcessManifest(
            argv=last.argv,
            commit=commit,
            tree=self.git.tree_of(commit),
            started_at=rounds[0].process.started_at,
            duration_s=sum(found.process.duration_s for found in rounds),
            exit_code=last.exit_code,
            signal=last.signal,
            ended_by=str(last.ended_by),
            resource_class=self.contract.environment.resource_class,
            output_bytes=sum(found.process.output_bytes for found in rounds),
            leftovers=tuple(name for found in rounds for name in found.process.leftovers)[:20],
            log_ref=self.log_path.name,
            runs=len(rounds),
        )


def _no_score(found: NoScore, process: ProcessOutcome) -> Round:
    """Tell a result that is wrong from an attempt that gave none."""
    label = found.label or "no score"
    if label.startswith("timeout"):
        return Round(None, StopReason.TIMEOUT, label, process)
    if label.startswith("crash") or not (process.ok or found.said):
        return Round(None, StopReason.CRASH, label, process)
    if found.said:
        return Round(None, "wrong", label, process)
    return Round(None, StopReason.PARSE_ERROR, f"{label} {found.detail}".strip()[:120], process)


def _spread(found: paired.Spread) -> records.Spread:
    return records.Spread(
        value=found.value, low=found.low, high=found.high, n=found.n, level=found.level
    )


def _no_process() -> ProcessOutcome:
    from datetime import UTC, datetime  # noqa: PLC0415 - rare

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
