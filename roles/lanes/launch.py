"""Start and end the lanes of a goal as plain processes of this machine.

Every lane is a process of its own session that restarts its own worker (`roles.lanes.lives`); the one
who starts them here only brings a lane back whose whole process was killed. They go on when the
starter is gone: `end_lanes` finds them by what the store knows of their incarnations.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from contracts import records
from contracts.canonical import canonical
from contracts.errors import UsageError
from contracts.words import Role
from roles.goal.context import GoalContext
from roles.lanes.ending import note_lane
from roles.lanes.lives import GAVE_UP
from roles.lanes.program import program

DEFAULT_LANES = tuple((f"{role}-1", role) for role in Role)
LaneName = tuple[str, Role | None]
"""An agent, and the one role that its lane serves; None for all of the agent's."""


def lanes_from(
    text: str | None, *, roster: Mapping[str, Collection[str]] | None = None
) -> list[LaneName]:
    """Read `executor=3,solo`: so many lanes of a role, and one lane of an agent of the roster.

    A role that is not named has one lane, unless an agent that is named holds it.

    Args:
        text: What was asked for.
        roster: Agent -> its roles out of the four (none for a role that it declares).

    Raises:
        UsageError: A role or an agent that there is not, or no number.
    """
    named, counts = [], {}
    for part in filter(None, (text or "").split(",")):
        name, equals, number = part.partition("=")
        if not equals and name in (roster or {}):
            named.append(name)
            continue
        if name not in set(Role) or not number.isdigit() or not 1 <= int(number) <= 64:
            message = f"{part!r} is no number of lanes, and no agent of the roster"
            hint = "Write --lanes executor=3,evaluator=2 (1 to 64 each), or the name of an agent."
            raise UsageError(message, hint=hint, mend=[["labmates", "agent", "list"]])
        counts[Role(name)] = int(number)
    held = {role for agent_id in named for role in (roster or {})[agent_id]}
    found: list[LaneName] = [
        (f"{role}-{n}", role)
        for role in Role
        for n in range(1, counts.get(role, 0 if role in held else 1) + 1)
    ]
    return [*found, *((agent_id, None) for agent_id in dict.fromkeys(named))]


def register_lanes(context: GoalContext, lanes: Sequence[LaneName], operator: str) -> None:
    """Put the lanes' agents on the roster; those that are there already stay as they are."""
    for agent_id, role in lanes:
        if role is None:
            continue
        found = context.reader.agent(agent_id).get("roles", "")
        if role in found.split(","):
            continue
        roles = [Role(each) for each in found.split(",") if each] + [role]
        registration = records.AgentRegistration(agent_id=agent_id, roles=tuple(roles))
        body = canonical({"registration": registration.to_json_dict()})
        context.writer.register(
            operator=operator, agent_id=agent_id, roles=[str(each) for each in roles], body=body
        )


@dataclass
class _Running:
    process: "subprocess.Popen[bytes]"
    started: float
    deaths: int = 0
    ended: int | None = None


@dataclass
class Lanes:
    """Lanes that this process started; `tend` brings back what was killed.

    Attributes:
        stopping: No lane is brought back any more.
    """

    context: GoalContext
    stopping: bool = False
    _running: dict[LaneName, _Running] = field(default_factory=dict)

    def start(self, lanes: Sequence[LaneName]) -> None:
        """Start each lane in a session of its own, its output in its log."""
        (self.context.folder / "logs").mkdir(parents=True, exist_ok=True)
        for agent_id, role in lanes:
            process = self._spawn(agent_id, role)
            self._running[agent_id, role] = _Running(process, time.monotonic())

    def _spawn(self, agent_id: str, role: Role | None) -> "subprocess.Popen[bytes]":
        argv = [*program(), "worker", *(["--role", role] if role else [])]
        argv += ["--agent-id", agent_id, "--goal-id", self.context.goal_id]
        environment = {**os.environ, "LABMATES_HOME": str(self.context.home)}
        if self.context.store:
            environment["LABMATES_STORE_URL"] = self.context.store
        with (self.context.folder / "logs" / f"{agent_id}.log").open("ab") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        note_lane(self.context, agent_id, process.pid)
        return process

    def tend(self) -> int:
        """Look at every lane once; start those again that were killed. Gives how many run."""
        alive = 0
        for (agent_id, role), lane in self._running.items():
            if lane.ended is not None:
                continue
            code = lane.process.poll()
            if code is None:
                alive += 1
                continue
            killed = code < 0 or code == 70
            if not killed or self.stopping or lane.deaths >= 5:
                lane.ended = code
                continue
            lane.deaths += 1
            lane.process, lane.started = self._spawn(agent_id, role), time.monotonic()
            alive += 1
        return alive

    def signal(self) -> None:
        """Ask every lane to end: the first time after its step, the second time at once."""
        self.stopping = True
        for lane in self._running.values():
            if lane.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    lane.process.send_signal(signal.SIGTERM)

    def processes(self) -> "list[subprocess.Popen[bytes]]":
        """Give the lanes' processes, each the first of its session."""
        return [lane.process for lane in self._running.values()]

    def given_up(self) -> list[str]:
        """List the lanes whose worker died too often."""
        return [agent for (agent, _), lane in self._running.items() if lane.ended == GAVE_UP]

    def failed(self) -> list[tuple[str, int]]:
        """List the lanes that ended with an error, with their exit codes; own errors before signals."""
        found = [
            (agent, lane.ended)
            for (agent, _), lane in self._running.items()
            if lane.ended is not None and lane.ended not in {0, GAVE_UP}
        ]
        return sorted(found, key=lambda each: each[1] < 0)
