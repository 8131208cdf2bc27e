"""Measure a commit: champion and candidate in interleaved pairs of rounds, and what they show.

Both sides of a pair get the same seed, drawn for it. A champion that gives no score is the
machine's fault; the first round in which the candidate gives none ends the measurement.
"""

import secrets
from dataclasses import dataclass
from typing import Literal

from contracts import records
from contracts.errors import MachineError
from contracts.words import EvalStatus, MetricStatus, Split, StopReason
from roles.measuring import paired
from roles.measuring.rounds import Round, Rounds

_DECIDED = {
    "improved": MetricStatus.IMPROVED,
    "flat": MetricStatus.FLAT,
    "regressed": MetricStatus.REGRESSED,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement as a record, and the failure that ended it, if one did."""

    measurement: records.Measurement
    failure: Literal["", "wrong"] | StopReason = ""


@dataclass(frozen=True, slots=True)
class Bench(Rounds):
    """Measures by rounds: one commit alone, or a candidate against the champion."""

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
        expected: dict[str, object] = {}
        for number, side in enumerate(paired.schedule(evaluation.pairs)):
            seed = self._seed(seeds) if number % 2 == 0 else (seeds[-1] if seeds else None)
            if side == "A":
                found = self._need(self.round(champion, split, seed))
            else:
                found = self.round(commit, split, seed)
                rounds.append(found)
            if side == "A" and not scores["A"]:
                expected = self._fields(found)
            elif self._fields(found) != expected:
                found = _incompatible(found, self._fields(found), expected)
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

    def _fields(self, found: Round) -> dict[str, object]:
        """Give what must agree in all rounds: the contract's compatibility fields."""
        return {name: found.detail.get(name) for name in self.contract.evaluation.compatibility}

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


def _incompatible(found: Round, has: dict[str, object], expected: dict[str, object]) -> Round:
    if found.score is None:
        return found
    name = next(name for name in expected if has[name] != expected[name])
    label = f"{name} is {has[name]}, not {expected[name]}"[:80]
    return Round(None, "wrong", label, found.process)


def _spread(found: paired.Spread) -> records.Spread:
    return records.Spread(
        value=found.value, low=found.low, high=found.high, n=found.n, level=found.level
    )
