"""A lane: an agent in one role, its claim, the lease that a thread renews, and what it says it does.

The lease thread never ends the work: a renewal that fails is tried again at the next turn, and a
refused one only sets `lost`, which the step asks before it writes. What decides is the fence. A
step that takes longer than it may is no longer renewed, and told to end as if its claim were lost.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import psutil
import structlog

from contracts.errors import LabmatesError, RefusedError
from contracts.store import keys
from contracts.store.writer import Held
from contracts.words import Role
from roles.goal.context import GoalContext

log = structlog.get_logger()

_TICK_S = 0.25


@dataclass(slots=True)
class Stop:
    """What signals asked for: one drains, two hand back what is under way."""

    asked: int = 0

    @property
    def draining(self) -> bool:
        """No new claim any more."""
        return self.asked > 0

    @property
    def now(self) -> bool:
        """End the step under way and hand it back."""
        return self.asked > 1


@dataclass
class Lane:
    """One agent on this machine, in one of its roles or in all of them.

    Attributes:
        role: The role of the claim of now, else of the last one; the first it serves before.
        serves: The roles it asks for, in the fixed order.
        asked: The one role it was started for; None for all of the agent's.
        title: What it says it is, for a role beyond the four.
        incarnation: Host, pid and start of this process as one word.
        held: The claim, while there is one.
        lost: The store refused a renewal, or the step hangs: the claim is given up.
        overdue: The step took longer than it may.
        store: The goal's incarnation in its store, as it was when this lane enlisted.
    """

    context: GoalContext
    agent_id: str
    role: Role
    incarnation: str
    stop: Stop
    serves: tuple[Role, ...] = ()
    asked: Role | None = None
    title: str = ""
    held: Held | None = None
    lost: bool = False
    overdue: bool = False
    store: str = ""
    _limit: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def claim(self) -> dict[str, object]:
        """Ask quota and take what it gives; gives the decision."""
        decision = self._ask(self.asked or "")
        role = str(decision.get("role") or "")
        if decision.get("should_run") == "1" and self.asked and role != self.asked:
            decision = self._ask(role)  # it holds a claim of another of its roles
        self.take(decision)
        return decision

    def _ask(self, role: str) -> dict[str, object]:
        """Claim in a role, or in the first of those it serves that gets a yes."""
        writer = self.context.writer
        apart = writer.by_role or len(self.serves) == 1  # a role's own rights reach no other role
        roles = [*map(str, self.serves)] if apart and not role else [role]
        decision: dict[str, object] = {}
        for each in roles:
            decision = writer.claim(
                agent_id=self.agent_id, incarnation=self.incarnation, role=each, store=self.store
            )
            found = str(decision.get("role") or "")
            if decision.get("should_run") == "1":
                return decision if found == each or not each else self._ask(found)
        return decision

    def take(self, decision: Mapping[str, object]) -> None:
        """Hold the claim that a decision carries, or none."""
        self.lost = self.overdue = False
        if decision.get("should_run") != "1":
            self.held = None
            return
        self.role = Role(str(decision["selected_role"]))
        self.held = Held(
            goal_id=self.context.goal_id,
            agent_id=self.agent_id,
            incarnation=self.incarnation,
            role=self.role,
            todo_id=str(decision["todo"]),
            fence=int(str(decision["fence"])),
            version=int(str(decision["version"])),
            store=self.store,
        )

    def require(self) -> Held:
        """Give the claim; a step runs only under one."""
        if self.held is None:
            message = "a step without a claim"
            raise LabmatesError(message)
        return self.held

    def moved(self, version: object) -> None:
        """Note the item's new version after a move that kept the claim."""
        self.held = replace(self.require(), version=int(str(version)))

    def drop(self) -> None:
        """Forget the claim; the store has ended it."""
        self.held = None

    def say(self, state: str, doing: str, *, waits_for: str = "") -> None:
        """Tell status and dashboards what this lane does now; derived, never part of the truth."""
        fields = {
            "state": state,
            "doing": doing,
            "waits_for": waits_for,
            "role": self.title or str(self.role),
            "todo": self.held.todo_id if self.held else "",
            "since_ms": str(int(time.time() * 1000)),
            "draining": "1" if self.stop.draining else "",
        }
        self._tell(fields)

    def _tell(self, fields: dict[str, str]) -> None:
        key = keys.lane(self.context.goal_id, self.agent_id)
        with contextlib.suppress(Exception):  # a view that is late harms nobody
            self.context.writer.client.hset(key, mapping=fields)  # type: ignore[arg-type]

    def pause(self, seconds: float) -> None:
        """Wait; a signal ends the wait."""
        deadline = time.monotonic() + seconds
        while not self.stop.draining and time.monotonic() < deadline:
            self._ended.wait(0.1)

    def begin_step(self, limit_s: float) -> None:
        """Let the step that begins now take so many seconds."""
        self._limit = time.monotonic() + limit_s

    def end_step(self) -> None:
        """No step is under way."""
        self._limit = None

    # The lease ----------------------------------------------------------------------------------

    def start_lease(self, every_s: float) -> None:
        """Renew the incarnation and its claim every `every_s` seconds until `end_lease`.

        The same thread says that the lane drains, which its step may not for a while.
        """

        def renew() -> None:
            due, said = time.monotonic() + every_s, False
            while not self._ended.wait(min(every_s, _TICK_S)):
                if self.stop.draining and not said:
                    said = True
                    self._tell({"draining": "1"})
                if time.monotonic() >= due:
                    due = time.monotonic() + every_s
                    self.renew()

        self._thread = threading.Thread(target=renew, name="lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Renew once, unless the step under way hangs; never raises."""
        held, limit = self.held, self._limit
        if limit is not None and time.monotonic() > limit:
            if not self.overdue:
                log.warning("step_overdue", todo=held.todo_id if held else "")
            self.lost = self.overdue = True
            return
        try:
            self.context.writer.renew(
                agent_id=self.agent_id,
                incarnation=self.incarnation,
                held=held,
                store=self.store,
                role=self.role if self.serves else "",
            )
        except RefusedError as error:
            if held is not None and held is self.held:
                self.lost = True
                log.warning("claim_lost", todo=held.todo_id, missing=error.missing)
        except Exception as error:  # noqa: BLE001 - a failed renewal degrades, it never ends work
            log.warning("renewal_failed", error=str(error))

    def end_lease(self) -> None:
        """Stop renewing."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)


def incarnation_of_this_process() -> dict[str, str]:
    """Name this process so that it is never taken for another: host, pid and start time."""
    process = psutil.Process()
    start = f"{process.create_time():.2f}"
    host = socket.gethostname()
    return {
        "inc": f"{host}/{os.getpid()}/{start}",
        "host": host,
        "pid": str(os.getpid()),
        "start": start,
    }


def is_dead_here(host: str, pid: str, start: str) -> bool:
    """Tell whether a process of this host is surely gone; unknown is never dead."""
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        process = psutil.Process(int(pid))
        if f"{process.create_time():.2f}" != start:
            return True
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def said(error: Exception) -> str:
    """Give what an error says, and the end of what a process behind it said."""
    if not isinstance(error, LabmatesError):
        return str(error)
    parts = (error.message, *(f"{name}: {text}" for name, text in error.facts.items()))
    return "\n".join(parts)[:600]
