"""Lanes inside the test's own process: one step at a time, real store, real git."""

import os

import psutil
import pytest

from contracts.words import Role
from roles.goal.context import GoalContext
from roles.lanes.launch import lanes_from, register_lanes
from roles.lanes.worker import carry_out
from roles.steps import outbox
from roles.steps.lane import Lane, Stop, incarnation_of_this_process


class KilledError(BaseException):
    """Stands for kill -9: nothing of the worker catches it."""


def lane_of(context: GoalContext, agent_id: str, life: str = "1") -> Lane:
    """Make a lane of one agent; another `life` is another incarnation."""
    register_lanes(context, lanes_from("executor=2,evaluator=2"), "operator:test")
    role = Role(agent_id.partition("-")[0])
    return Lane(context, agent_id, role, f"test/{os.getpid()}/{life}", Stop())


def step(lane: Lane) -> str:
    """Let a lane ask once and carry out what it gets; gives the state it left the item in."""
    decision = lane.claim()
    outbox.settle(lane)
    if decision.get("should_run") != "1":
        return ""
    carry_out(lane)
    return lane.context.reader.item(str(decision["todo"])).get("state", "")


def killed_before_delivery(lane: Lane, patch: pytest.MonkeyPatch) -> None:
    """Let a lane take one step and die between finishing and delivering."""

    def die(*_: object) -> None:
        raise KilledError

    with patch.context() as inner:
        inner.setattr(outbox.Finished, "send", die)
        with pytest.raises(KilledError):
            step(lane)


def enlist(lane: Lane) -> None:
    """Make a lane the agent's live incarnation."""
    identity = incarnation_of_this_process() | {"inc": lane.incarnation}
    lane.context.writer.enlist(
        agent_id=lane.agent_id, role=lane.role, incarnation=identity, dead=""
    )


def children() -> list[psutil.Process]:
    """List what this process started and has not ended."""
    return psutil.Process().children(recursive=True)
