"""The executor: one attempt in a worktree, from the claim to evidence or a retry packet.

Every attempt that was started ends in the store as evidence or as a retry packet. A crash between
any two lines leaves something the next claim goes on from: the worktree is opened again, a commit
that is there is not made again, and only the store's record counts.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import structlog

from contracts import records
from contracts.canonical import canonical
from contracts.errors import LabmatesError, RefusedError, StoreError
from contracts.events import EvaluationRecorded, HypothesisAdded, RetryRecorded
from contracts.words import EvalStatus, EventType, MetricStatus, Split, State, StopReason
from roles.drivers.base import Brief, DriverOutcome, DriverStatus, get_driver
from roles.goal.changes import change_folder
from roles.steps import outbox
from roles.steps.lane import Lane
from roles.workspace.objects import changes_between
from roles.workspace.repository import machinery, touched
from roles.workspace.scope import check_scope, printable
from roles.workspace.worktree import Worktree, close, commit_change, open_attempt, replay

log = structlog.get_logger()

_STOP_REASONS = {
    DriverStatus.NO_CHANGE: StopReason.NO_CHANGE,
    DriverStatus.TIMEOUT: StopReason.TIMEOUT,
    DriverStatus.SILENT: StopReason.SILENT,
    DriverStatus.CRASH: StopReason.CRASH,
    DriverStatus.OUT_OF_MEMORY: StopReason.OUT_OF_MEMORY,
    DriverStatus.BASE_CONFLICT: StopReason.BASE_CONFLICT,
    DriverStatus.DRIVER_ERROR: StopReason.DRIVER_ERROR,
    DriverStatus.STOPPED: StopReason.OPERATOR_TAKEOVER,
}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt under way: the item as claimed, and where it runs."""

    number: int
    hypothesis_id: str
    hypothesis: records.Hypothesis
    worktree: Worktree
    replay_of: str | None


def execute(lane: Lane, item: dict[str, str]) -> None:
    """Carry one claim to its end: start or resume the attempt, then deliver what came of it."""
    state = State(item["state"])
    if state is State.ATTEMPT_RUNNING:
        finished = outbox.waiting(lane, item, EventType.EVIDENCE_RECORDED, EventType.RETRY_RECORDED)
        if finished is not None:
            _deliver_from_disk(lane, item, finished)
            return
        try:
            attempt = _resumed(lane, item)
        except (RefusedError, StoreError):
            raise
        except (LabmatesError, OSError) as error:
            _give_up(lane, int(item["attempt"]), StopReason.DRIVER_ERROR, _said(error))
            return
        _bring_to_end(lane, attempt)
        return
    started = _started(lane, item)
    if started is not None:
        _bring_to_end(lane, started)


def _deliver_from_disk(lane: Lane, item: dict[str, str], finished: outbox.Finished) -> None:
    """Send what an earlier half of this attempt came to; nothing of it runs again."""
    outbox.deliver(lane, finished)
    lane.drop()
    try:
        close(_open(lane, item, int(item["attempt"]), item["base_commit"]))
    except (LabmatesError, OSError) as error:  # the sweep of this lane's next start tries again
        log.warning("worktree_not_closed", attempt=item["attempt"], error=str(error))


def _hypothesis(lane: Lane, item: dict[str, str]) -> records.Hypothesis:
    event = lane.context.follower.event(int(item["added_rev"]))
    if not isinstance(event, HypothesisAdded):
        message = f"revision {item['added_rev']} adds no hypothesis"
        raise LabmatesError(message)
    return event.hypothesis


def _open(lane: Lane, item: dict[str, str], number: int, base: str) -> Worktree:
    return open_attempt(
        lane.context.git,
        lane.context.home,
        goal=lane.context.goal_id,
        hypothesis=item["hyp"],
        attempt=number,
        base=base,
    )


def _started(lane: Lane, item: dict[str, str]) -> _Attempt | None:
    """Open the worktree on the champion of now and record the start; None where it is refused."""
    context = lane.context
    goal = context.reader.require_goal()
    number, base = int(item["next_attempt"]), goal["champion_commit"]
    worktree = _open(lane, item, number, base)
    confirmation = item.get("wants_confirm") or None
    replay_of = item.get("commit") if item["state"] == State.SUPPORTED else None
    start = records.AttemptStart.model_validate(
        {
            "branch": worktree.branch,
            "base_commit": base,
            "base_revision": int(goal["champion_rev"]),
            "worktree": str(worktree.path.relative_to(context.home.resolve())),
            "scope_sha256": context.contract.protected_scope_sha256,
            "confirmation": confirmation,
            "replay_of": replay_of,
        }
    )
    body = canonical({"start": start.to_json_dict()})
    try:
        answer = context.writer.advance(
            lane.require(),
            State.ATTEMPT_RUNNING,
            records=[(EventType.ATTEMPT_STARTED, body)],
            base_rev=goal["champion_rev"],
            base_commit=base,
            replay_of=replay_of or "",
        )
    except RefusedError as error:
        close(worktree)
        if error.reason in {"stale_fence", "not_claimed"}:
            raise
        # paused, closed, gated, or the champion moved since the claim: nothing was started
        reasons = {"base_current": "stale_base", "not_paused": "goal_paused"}
        context.writer.release(lane.require(), reasons.get(error.reason, "goal_closed"))
        lane.drop()
        return None
    lane.moved(answer["version"])
    return _Attempt(number, item["hyp"], _hypothesis(lane, item), worktree, replay_of)


def _resumed(lane: Lane, item: dict[str, str]) -> _Attempt:
    """Go on with an attempt that a worker of this lane left behind."""
    number = int(item["attempt"])
    worktree = _open(lane, item, number, item["base_commit"])
    return _Attempt(
        number, item["hyp"], _hypothesis(lane, item), worktree, item.get("replay_of") or None
    )


def _bring_to_end(lane: Lane, attempt: _Attempt) -> None:
    """Bring the attempt to its end; what fails on the way is an end too, never a start again."""
    outcome: DriverOutcome | None = None
    try:
        if attempt.worktree.committed is None and not attempt.replay_of:
            _surroundings(lane, attempt)
            outcome = _drive(lane, attempt)
        _finish(lane, attempt, outcome)
    except (RefusedError, StoreError):
        raise
    except (LabmatesError, OSError, ValueError) as error:  # ValueError: no record can hold it
        log.warning("attempt_failed", attempt=attempt.number, error=str(error))
        _give_up(lane, attempt, StopReason.DRIVER_ERROR, _said(error), outcome)


def _finish(lane: Lane, attempt: _Attempt, outcome: DriverOutcome | None) -> None:
    worktree = attempt.worktree
    commit = worktree.committed
    if outcome is not None:
        if outcome.status is not DriverStatus.CHANGED:
            detail = "\n".join((outcome.summary, *_surroundings(lane, attempt)))
            stopped = _STOP_REASONS[outcome.status]
            if lane.overdue:
                stopped, detail = StopReason.TIMEOUT, f"the step hung and was ended\n{detail}"
            _give_up(lane, attempt, stopped, detail, outcome)
            return
        title = f"{attempt.hypothesis.title}\n\n{attempt.hypothesis_id}, attempt {attempt.number}"
        commit = commit_change(worktree, title)
        if commit is None:
            detail = "\n".join(("nothing differs from the base", *_surroundings(lane, attempt)))
            _give_up(lane, attempt, StopReason.NO_CHANGE, detail, outcome)
            return
    elif commit is None and attempt.replay_of:
        lane.say(
            "working", f"attempt {attempt.number}, {attempt.hypothesis_id}: replays its commit"
        )
        commit = replay(lane.context.git, worktree, attempt.replay_of)
    if commit is None:
        _give_up(lane, attempt, StopReason.BASE_CONFLICT, "its commit conflicts with the champion")
        return
    evidence = _evidence(lane, attempt, commit, outcome)
    finished = outbox.finish(
        lane,
        EventType.EVIDENCE_RECORDED,
        canonical({"evidence": evidence.to_json_dict()}),
        to=State.EVIDENCE_RECORDED,
        facts={"commit": commit, **_cost(attempt.number, evidence.cost_usd)},
        about=_about(attempt.number),
        result=f"evidence of attempt {attempt.number}, commit {commit}",
    )
    outbox.deliver(lane, finished)
    _end(lane, attempt)


def _surroundings(lane: Lane, attempt: _Attempt) -> tuple[str, ...]:
    """Name what changed around the worktrees since the attempt's first call of this.

    The first state is a file: a driver that ends the worker is still compared with it.
    """
    place = lane.context.folder / "surroundings" / f"attempt-{attempt.number}.json"
    now = machinery(lane.context.git)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_suffix(".new")
        fresh.write_text(json.dumps(now, indent=1), encoding="utf-8")
        fresh.rename(place)
        return ()
    before = json.loads(place.read_text(encoding="utf-8"))
    return touched(before, now)


def _drive(lane: Lane, attempt: _Attempt) -> DriverOutcome:
    contract = lane.context.contract
    hypothesis = attempt.hypothesis
    lane.say("working", f"attempt {attempt.number}, {attempt.hypothesis_id}: {hypothesis.driver}")
    logs = lane.context.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    change = hypothesis.change_ref
    brief = Brief(
        goal_id=lane.context.goal_id,
        hypothesis_id=attempt.hypothesis_id,
        attempt=attempt.number,
        title=hypothesis.title,
        hypothesis=hypothesis.hypothesis,
        worktree=attempt.worktree.path,
        editable=contract.context.editable,
        protected=contract.context.protected,
        timeout_s=contract.policy.attempt_timeout_s,
        change_dir=change_folder(lane.context, change) if change else None,
        command=contract.strategy.driver_command,
        feedback=_feedback(lane, attempt),
        env={},
        log_path=logs / f"attempt-{attempt.number}.log",
        stop=lambda: lane.stop.now or lane.lost,
    )
    return get_driver(hypothesis.driver).run(brief)


def _feedback(lane: Lane, attempt: _Attempt) -> str:
    """Give what the hypothesis' last attempt ended with: the guard's output, or a retry reason."""
    found = ""
    for event in lane.context.follower.by_revision.values():
        if event.hypothesis_id != attempt.hypothesis_id:
            continue
        if isinstance(event, RetryRecorded):
            found = event.retry.retry_reason
        elif isinstance(event, EvaluationRecorded) and event.evaluation.retry_reason:
            found = event.evaluation.retry_reason
    return found


def _evidence(
    lane: Lane, attempt: _Attempt, commit: str, outcome: DriverOutcome | None
) -> records.Evidence:
    """Check the scope of what was committed, before anything of it runs."""
    context, contract = lane.context, lane.context.contract
    base = attempt.worktree.base
    changes = changes_between(context.git, base, commit)
    scope = check_scope(changes, contract.context.editable, contract.context.protected)
    around = () if attempt.replay_of else _surroundings(lane, attempt)
    violations = (*around, *(f"{found.path}: {found.why}" for found in scope.violations))
    _, added, removed = context.git.diff_stat(base, commit)
    return records.Evidence(
        attempt=attempt.number,
        split=Split.DEV,
        metric=records.Metric(
            name=contract.evaluation.metric, direction=contract.evaluation.direction
        ),
        primary_metric_status=MetricStatus.INCONCLUSIVE,
        eval_status=EvalStatus.INCONCLUSIVE,
        code_ref=commit,
        branch=attempt.worktree.branch,
        changed_files=tuple(printable(path) for path in scope.changed[:200]),
        insertions=added,
        deletions=removed,
        scope_violations=tuple(printable(line) for line in violations[:50]),
        protected_scope_clean=not violations,
        raw_logs_recorded=False,
        private_artifacts_recorded=False,
        manifest=_manifest(lane, attempt, commit, outcome),
        cost_usd=outcome.cost_usd if outcome else 0.0,
        summary=outcome.summary if outcome else "replayed on the champion",
    )


def _give_up(
    lane: Lane,
    attempt: _Attempt | int,
    reason: StopReason,
    detail: str,
    outcome: DriverOutcome | None = None,
) -> None:
    """End the attempt with a retry packet; edits are kept in the salvage ref by the next opening.

    A number stands for an attempt whose worktree cannot be opened.
    """
    number = attempt if isinstance(attempt, int) else attempt.number
    worktree = None if isinstance(attempt, int) else attempt.worktree
    cost = outcome.cost_usd if outcome else 0.0
    packet = records.RetryPacket(
        attempt=number,
        stop_reason=reason,
        retry_reason=f"{reason}: {printable(detail)}"[:300],
        resumable_ref=worktree.branch if worktree and worktree.committed else None,
        cost_usd=cost,
        detail=printable(detail)[:2000],
    )
    finished = outbox.finish(
        lane,
        EventType.RETRY_RECORDED,
        canonical({"retry": packet.to_json_dict()}),
        to=State.NEEDS_RETRY,
        facts={"reason": str(reason), **_cost(number, cost)},
        about=_about(number),
        result=f"retry packet of attempt {number}: {reason}",
    )
    outbox.deliver(lane, finished)
    _end(lane, attempt)


def _about(number: int) -> dict[str, str]:
    return {"state": str(State.ATTEMPT_RUNNING), "attempt": str(number)}


def _end(lane: Lane, attempt: _Attempt | int) -> None:
    """Forget the claim, which the store has ended, and remove the worktree, now or later."""
    lane.drop()
    if isinstance(attempt, int):
        return
    try:
        close(attempt.worktree)
    except (LabmatesError, OSError) as error:  # the sweep of this lane's next start tries again
        log.warning("worktree_not_closed", attempt=attempt.number, error=str(error))


def _said(error: Exception) -> str:
    """Give what an error says, and what git said about it."""
    if not isinstance(error, LabmatesError):
        return str(error)
    return f"{error.message}\n{error.facts.get('stderr', '')}".strip()


def _cost(number: int, cost_usd: float) -> dict[str, str]:
    if cost_usd <= 0:
        return {}
    spend = records.Spend(attempt=number, cost_usd=cost_usd)
    return {
        "cost": str(round(cost_usd * 1_000_000)),
        "spent_body": canonical({"spend": spend.to_json_dict()}),
    }


def _manifest(
    lane: Lane, attempt: _Attempt, commit: str, outcome: DriverOutcome | None
) -> records.ProcessManifest:
    """Describe the driver's process, or the git work that stood in for one."""
    process = outcome.process if outcome else None
    git = lane.context.git
    common = {
        "commit": commit,
        "tree": git.tree_of(commit),
        "resource_class": lane.context.contract.environment.resource_class,
    }
    if process is None:
        what = ("git", "cherry-pick") if outcome is None else (attempt.hypothesis.driver,)
        return records.ProcessManifest(
            argv=what,
            started_at=lane.context.reader.now(),
            duration_s=0.0,
            exit_code=0,
            ended_by="exit",
            **common,
        )
    return records.ProcessManifest(
        argv=process.argv,
        started_at=process.started_at,
        duration_s=process.duration_s,
        exit_code=process.exit_code,
        signal=process.signal,
        ended_by=str(process.ended_by),
        output_bytes=process.output_bytes,
        leftovers=process.leftovers[:20],
        log_ref=Path(process.log_path).name if process.log_path else None,
        **common,
    )
