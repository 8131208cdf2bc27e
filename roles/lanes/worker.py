"""The worker loop: wait without polling, claim, act, show evidence, advance.

Theory of operation. A worker is one process of one agent, in one of its roles or in all of them
(asked for in the fixed order; every record names the role of its claim). It enlists its incarnation
(a second live one is refused), then asks quota and claims in one step. A yes is carried out by the
role's module, which leaves the item moved, signed or given back. A no is waited out on the wake
lists of its roles, at most until the next lease end or 30 s; a lost token costs one such wait.
Signals only raise a counter: one drains (the step under way ends, then the worker leaves), two
hand the step back. A refusal ends a step, never the worker. A store that cannot be reached stops
new work; the claim is renewed as soon as it answers again, and what was finished is delivered from
the outbox (`roles.steps.outbox`) under its fence.

Not here: who may claim what (`quota`, in the store), what a step does (one module per role), and
restarting a worker that died (`roles.lanes.lives`).
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

import structlog

from contracts.canonical import canonical
from contracts.errors import LabmatesError, RefusedError, StoreError, StoreUnreachableError
from contracts.store import keys
from contracts.store.connect import BLOCK_LIMIT_S, wait_for_answer, with_retries
from contracts.store.embedded import ensure_server
from contracts.words import Phase, Reason, Role
from roles.goal.context import library_again, open_context, with_credentials
from roles.lanes.lives import DIED_MARK
from roles.lanes.sweep import sweep_scratch, sweep_worktrees
from roles.steps import outbox
from roles.steps.champion import move_champion_ref
from roles.steps.curating import curate
from roles.steps.evaluating import evaluate
from roles.steps.executing import execute
from roles.steps.lane import Lane, Stop, incarnation_of_this_process, is_dead_here, said
from roles.steps.limits import step_limit_s
from roles.steps.proposing import propose

log = structlog.get_logger()

STEPS: dict[Role, Callable[[Lane, dict[str, str]], None]] = {
    Role.CURATOR: curate,
    Role.PROPOSER: propose,
    Role.EXECUTOR: execute,
    Role.EVALUATOR: evaluate,
}
OVER = {Reason.GOAL_DONE, Reason.GOAL_ESCALATED}
OVER_PHASES = (Phase.DONE, Phase.ESCALATE)
_RESTORE_WAIT_S = 120.0
"""How long a worker waits for a goal that its store no longer has: somebody may be restoring it."""


def run_worker(
    goal_id: str, agent_id: str, role: Role | None, *, url: str | None = None, stay: bool = False
) -> int:
    """Serve an agent's role, or all of them, until the goal is over or a signal ends it.

    Args:
        goal_id: The goal.
        agent_id: An agent of its roster.
        role: One of the agent's roles; None for all of them.
        url: The store, or None for the environment's.
        stay: Wait on after the goal is done or escalated.

    Returns:
        0 when it drained or the goal is over.

    Raises:
        RefusedError: The agent or role is not on the roster, or another process is this agent now.
        StoreError: The store cannot be used at the start.
    """
    context = with_retries(lambda: open_context(goal_id, url=url))
    stop = Stop()
    listen(stop)
    identity = incarnation_of_this_process()
    held = context.reader.agent(agent_id).get("roles", "").split(",")
    serves = (role,) if role else tuple(each for each in Role if each in held)
    # an agent without a role is refused by the store, by name
    first = serves[0] if serves else Role.CURATOR
    context = with_credentials(context, [each for each in Role if each in held])
    lane = Lane(context, agent_id, first, identity["inc"], stop, serves=serves, asked=role)
    enlist(lane, identity)
    lease_ms = int(context.reader.require_goal()["lease_ms"])
    lane.start_lease(lease_ms / 3000)
    try:
        _tidy(lane)
        _serve(lane, stay=stay)
        _tidy(lane)
    finally:
        lane.end_lease()
        leave(lane)
    return 0


def listen(stop: Stop) -> None:
    """Let TERM and INT raise a counter and nothing else."""

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.asked += 1

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)


def enlist(lane: Lane, identity: dict[str, str]) -> None:
    """Become the agent's one live incarnation; a dead one on this host is replaced at once."""
    context = lane.context
    before = context.reader.agent(lane.agent_id)
    dead = ""
    if before.get("inc") and is_dead_here(
        before.get("inc_host", ""), before.get("inc_pid", ""), before.get("inc_start", "")
    ):
        dead = before["inc"]
    _, lane.store = context.writer.enlist(
        agent_id=lane.agent_id,
        role=lane.role if lane.serves else "",
        incarnation=identity,
        dead=dead,
        died=os.environ.get(DIED_MARK, ""),
    )


def _tidy(lane: Lane) -> None:
    """Remove what a crash left: scratch, settled worktrees; move the champion's branch."""
    try:
        sweep_scratch(lane.context, lane.agent_id)
        if Role.EXECUTOR in lane.serves:
            sweep_worktrees(lane.context)
        move_champion_ref(lane.context)
    except (LabmatesError, OSError) as error:
        log.warning("tidy_failed", error=str(error))


def leave(lane: Lane) -> None:
    """End the incarnation; a store that does not answer is left as it is."""
    try:
        lane.drop()
        lane.say("down", "ended")
        lane.context.writer.leave(
            agent_id=lane.agent_id,
            incarnation=lane.incarnation,
            role=lane.role if lane.serves else "",
        )
    except StoreError as error:
        log.warning("leave_failed", error=error.message)


def _serve(lane: Lane, *, stay: bool) -> None:
    outages, gone_since = 0, None
    while not lane.stop.draining:
        try:
            try:
                decision = lane.claim()
                gone_since = None
            except RefusedError as error:
                gone_since = gone_since or time.monotonic()
                if not _joins_again(lane, error, time.monotonic() - gone_since):
                    raise
                continue
            outbox.settle(lane)
            if decision.get("should_run") == "1":
                carry_out(lane)
                outages = 0
                continue
            if decision.get("reason") in OVER and not stay:
                return
            _wait(lane, decision)
            outages = 0
        except StoreError as error:
            log.warning("store_outage", error=error.message)
            sit_out(lane, error, outages)
            # before anybody else asks, who would find a lease that ended while nothing answered
            lane.renew()
            lane.drop()
            outages += 1


def _joins_again(lane: Lane, error: RefusedError, waited_s: float) -> bool:
    """Enlist in a restored store, or wait for one that is being restored; False for neither.

    What this worker knows of the old store is dropped; its finished evidence stays on disk.
    """
    lane.drop()
    if error.reason == "store_changed":
        log.warning("store_changed", agent=lane.agent_id)
        lane.context.follower.start_over()
        enlist(lane, incarnation_of_this_process())
        return True
    if error.reason == "goal_unknown" and waited_s < _RESTORE_WAIT_S:
        if waited_s < 0.1:
            log.warning("goal_gone", agent=lane.agent_id, waits_s=_RESTORE_WAIT_S)
        lane.pause(0.5)
        return True
    return False


def carry_out(lane: Lane) -> None:
    """Carry out the claim; whatever happens, the worker goes on with the next."""
    held = lane.require()
    lane.context.follower.catch_up()
    item = lane.context.reader.item(held.todo_id)
    lane.say("working", f"{item.get('hyp') or held.todo_id}: {item.get('state')}")
    lane.begin_step(step_limit_s(lane.context.contract, Role(held.role)))
    try:
        STEPS[Role(held.role)](lane, item)
    except RefusedError as error:
        _refused(lane, error)
    except StoreError:
        raise
    except LabmatesError as error:
        log.warning("step_failed", todo=held.todo_id, error=error.message, facts=error.facts)
        _give_back(lane, "step_failed", detail=said(error))
    finally:
        lane.end_step()


def _refused(lane: Lane, error: RefusedError) -> None:
    """Put a late result on record and go on; any other refusal gives the claim back."""
    held = lane.held
    log.warning("refused", reason=error.reason, missing=error.missing, what=error.message)
    if held is None:
        return
    if error.reason == "store_changed":  # the next claim says so again, and enlists
        lane.drop()
        return
    if error.reason not in outbox.LOST:
        _give_back(lane, error.reason, detail=error.message)
        return
    now = lane.context.reader.item(held.todo_id)
    body = canonical({"current_fence": int(now.get("fence") or 0), "what": error.message[:200]})
    try:
        lane.context.writer.reject_stale(held, body=body)
    except RefusedError as again:  # the todo is gone, or its claim has not ended after all
        log.warning("late_step_unknown", todo=held.todo_id, reason=again.reason)
    lane.drop()


def _give_back(lane: Lane, reason: str, *, detail: str = "") -> None:
    """Release the claim; an attempt under way stays claimed and is resumed by the next claim."""
    held = lane.held
    if held is None:
        return
    try:
        lane.context.writer.release(held, reason, detail=detail)
    except RefusedError as error:
        log.warning("release_refused", reason=error.reason, missing=error.missing)
    lane.drop()


def _wait(lane: Lane, decision: dict[str, object]) -> None:
    """Wait for a token of a role, or for the next lease end; a signal ends the wait."""
    reason = str(decision.get("reason"))
    lane.say("waiting", reason, waits_for=str(decision.get("open_gate") or ""))
    until, now = int(str(decision.get("until") or 0)), int(str(decision.get("now") or 0))
    seconds = BLOCK_LIMIT_S
    if until:
        seconds = min(seconds, max(0.05, (until - now) / 1000 + 0.02))
    wakes = [keys.wake(lane.context.goal_id, role) for role in lane.serves]
    waited = 0.0
    while waited < seconds and not lane.stop.draining:
        # signals are seen between blocks, so a block is short; an idle lane asks nothing meanwhile
        part = min(1.0, seconds - waited)
        if lane.context.writer.blocking_pop(wakes, part):
            return
        waited += part


def sit_out(lane: Lane, error: StoreError, outages: int) -> None:
    """Wait out a store that does not answer, takes no writes or has lost its functions.

    Nothing is taken or lost meanwhile. The embedded server is started again by whoever comes
    first; its data is there. The next claim is the probe.
    """
    context = lane.context
    if isinstance(error, StoreUnreachableError):
        wait_for_answer(
            context.writer.client,
            start=None if context.store else ensure_server,
            stop=lambda: lane.stop.draining,
            url=context.writer.url,
        )
    else:
        lane.pause(min(5.0, 0.1 * 2**outages))
    with contextlib.suppress(StoreError):
        library_again(context)
