"""The run itself: lanes as plain processes, their goal shown until it is over.

Theory of operation. Whoever holds the demo's lock tends the lanes; everybody else only watches the
same goal. The lanes are sessions of their own: they outlive the one who started them, and a later
run finds those that live by their incarnations, and starts only what is missing. Ctrl-C is counted
by a handler and acted on between two looks: once drains, twice hands back.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from contracts.errors import (
    LabmatesError,
    PreconditionError,
    RecordsError,
    RefusedError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from contracts.events import AnyEvent
from contracts.store.connect import connect, store_url
from contracts.store.embedded import ensure_server
from contracts.store.library import ensure_library
from contracts.store.reader import Reader, goal_ids
from contracts.store.writer import Writer
from contracts.words import Phase
from demo.goals import make_goal, name_goal, named_goal, next_goal_id, run_lock, unfinished
from demo.preset import Preset
from demo.watch import Watched, watch
from roles.goal.context import GoalContext, open_context
from roles.goal.contract_file import require_unchanged
from roles.goal.goals import repository_of
from roles.lanes.ending import live_lanes
from roles.lanes.launch import Lanes, lanes_from, register_lanes

LOOK_S = 0.1
REVIVALS = 3
"""How often a run brings its embedded server back before it gives up."""

_CLASSES: dict[int, type[LabmatesError]] = {
    2: UsageError,
    3: RefusedError,
    4: StoreError,
    5: PreconditionError,
    6: RecordsError,
}


class Show(Protocol):
    """What a run tells whoever looks: lines, a live view, or nobody."""

    def begin(self, watched: Watched, *, attached: bool) -> None:
        """Start showing a goal."""

    def look(self, watched: Watched, fresh: list[AnyEvent]) -> None:
        """Show what is new; called about ten times a second."""

    def say(self, text: str) -> None:
        """Show one sentence about the run itself."""

    def end(self, watched: Watched) -> None:
        """Show the last state and stop."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        exit_code: As `docs/reference/exit-codes.md` says.
        stopped: By whom it was stopped before its end; empty if it was not.
        detached: This process only watched, and the run goes on without it.
        live: Lanes that live on.
        claims: Todos still claimed, by agent.
        workspace: The git repository of the run.
    """

    goal_id: str
    exit_code: int
    stopped: str
    detached: bool
    live: tuple[str, ...]
    claims: dict[str, str]
    workspace: Path
    watched: Watched


@dataclass
class _Signals:
    """Counts Ctrl-C and TERM while it is installed."""

    asked: int = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        def note(_number: int, _frame: FrameType | None) -> None:
            self.asked += 1

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_headless(preset: Preset, show: Show, *, store: str = "", resume: bool = False) -> Outcome:
    """Run the preset until its goal is over or somebody stops it; or watch the run there is.

    Args:
        preset: What to run.
        show: What is told of it.
        store: The store's address; empty means the environment's, else the embedded server.
        resume: Go on with the last unfinished run instead of starting a new one.

    Raises:
        UsageError: `resume`, and nothing is unfinished.
        RefusedError: The contract in the workspace is no longer the one that was approved.
        PreconditionError: git or numpy is missing, or a workspace is.
        MachineError: The disk takes no more.
        StoreError: The store cannot be used, or went away; the lanes were ended.
        LabmatesError: A lane gave up.
    """
    signals = _Signals()
    with signals.installed(), run_lock() as lock:
        if lock is None:
            return _attach(show, signals, store)
        name_goal(lock, "")
        url = store_url(store or None)
        client = connect(url)
        ensure_library(client)
        goal_id = _chosen(preset, Reader(client, "", url=url), store, resume=resume)
        if goal_id:
            require_unchanged(Reader(client, goal_id, url=url), repository_of(goal_id))
        else:
            goal_id = next_goal_id(preset.name, goal_ids(client, url=url))
            try:
                make_goal(preset, goal_id, Writer(client, goal_id, url=url))
            except LabmatesError:
                if signals.asked:  # git has heard the terminal's Ctrl-C too
                    raise KeyboardInterrupt from None
                raise
        name_goal(lock, goal_id)
        return _Run(open_context(goal_id, url=store), show, signals).until_over()


def _chosen(preset: Preset, reader: Reader, store: str, *, resume: bool) -> str:
    """Give the unfinished goal to go on with, or nothing for a new one.

    Without `resume` only a run whose lanes live without anybody who tends them is taken up.
    """
    found = unfinished(reader, preset.name)
    if resume:
        if not found:
            message = f"no unfinished run of the preset {preset.name} is on this machine"
            mend = [["labmates", "demo", "--execute", "--headless"]]
            raise UsageError(message, mend=mend, tail="Nothing was started.")
        return found[0]
    for goal_id in found:
        if live_lanes(open_context(goal_id, url=store)):
            return goal_id
    return ""


# Watch the run of another process ----------------------------------------------------------------


def _attach(show: Show, signals: _Signals, store: str) -> Outcome:
    """Show the run that another process tends, until it is over; Ctrl-C only looks away."""
    limit = time.monotonic() + 30
    while not (goal_id := named_goal()):
        if signals.asked or time.monotonic() > limit:
            message = "another process is starting a demo, and has not named its goal yet"
            raise PreconditionError(message, mend=[["labmates", "demo", "--execute", "--headless"]])
        time.sleep(LOOK_S)
    context = open_context(goal_id, url=store)
    watched = watch(context.reader)
    show.begin(watched, attached=True)
    is_over = False
    try:
        while not signals.asked and not is_over:
            fresh = watched.catch_up()
            show.look(watched, fresh)
            is_over = not live_lanes(context) and (watched.is_over() or not _is_held())
            time.sleep(LOOK_S)
        show.look(watched, watched.catch_up())
    finally:
        with contextlib.suppress(StoreError):
            show.end(watched)
    by = "the one who ran it" if is_over and not watched.is_over() else ""
    return _outcome(context, watched, stopped=by, detached=not is_over)


def _is_held() -> bool:
    with run_lock() as lock:
        return lock is None


# Tend a run --------------------------------------------------------------------------------------


@dataclass
class _Run:
    context: GoalContext
    show: Show
    signals: _Signals
    _told: int = 0
    _revived: int = 0
    _is_reported: bool = False
    _started: set[str] = field(default_factory=set)

    def until_over(self) -> Outcome:
        """Start the lanes that do not live, and stay with all of them."""
        context = self.context
        wanted = lanes_from(None)
        register_lanes(context, wanted, "operator:demo")
        watched = watch(context.reader)
        watched.catch_up()
        lanes = Lanes(context)
        living = live_lanes(context)
        if not (watched.state.approved and watched.is_over()):
            missing = [lane for lane in wanted if lane[0] not in living]
            self._started = {agent_id for agent_id, _ in missing}
            lanes.start(missing)
        self.show.begin(watched, attached=False)
        try:
            self._stay(lanes, watched)
        except BaseException as error:
            if isinstance(error, StoreError):
                self.show.say("the store gives no answer; the lanes are ended")
            self._end(lanes)
            raise
        finally:
            with contextlib.suppress(StoreError):
                self.show.end(watched)
        self._raise_for(lanes)
        over = watched.is_over()
        by = "you" if self.signals.asked else "labmates down"
        return _outcome(context, watched, stopped="" if over else by, detached=False)

    def _stay(self, lanes: Lanes, watched: Watched) -> None:
        fresh = [*watched.follower.by_revision.values()]
        while True:
            own = lanes.tend()
            try:
                fresh += watched.catch_up()
                self.show.look(watched, fresh)
                fresh = []
                if not own and not live_lanes(self.context):
                    return
            except StoreUnreachableError as error:
                self._revive(error)
            if not self._is_reported and (lanes.given_up() or lanes.failed()):
                self._is_reported = True
                self.show.say("a lane has ended with an error; the others end after their step")
                self._signal(lanes)
            if self.signals.asked > self._told:
                self._told = self.signals.asked
                first = "the lanes end after what runs; Ctrl-C again hands it back"
                self.show.say(first if self._told == 1 else "the lanes hand back what runs")
                self._signal(lanes)
            time.sleep(LOOK_S)  # the lanes are processes: there is nothing here to wait on at once

    def _signal(self, lanes: Lanes) -> None:
        """Ask every lane to end, those that an earlier run started too."""
        lanes.signal()
        with contextlib.suppress(StoreError):
            for agent_id, (pid, _) in live_lanes(self.context).items():
                if agent_id not in self._started:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

    def _revive(self, error: StoreUnreachableError) -> None:
        """Bring the embedded server back; another store is its owner's to mend."""
        self._revived += 1
        if self.context.store or self._revived > REVIVALS or self.signals.asked:
            error.tail = "The lanes were ended. Go on: labmates demo --execute --headless --resume"
            raise error
        self.show.say("the embedded store was gone; it is started again")
        ensure_server(self.context.home)

    def _end(self, lanes: Lanes) -> None:
        """End the lanes without the store's help: drain, hand back, and leave none."""
        for limit in (15.0, 10.0):
            lanes.signal()
            until = time.monotonic() + limit
            while lanes.tend() and time.monotonic() < until:
                time.sleep(LOOK_S)

    def _raise_for(self, lanes: Lanes) -> None:
        """Raise for a lane that gave up or failed; its log says why."""
        logs = self.context.folder / "logs"
        resume = [["labmates", "demo", "--execute", "--headless", "--resume"]]
        for agent_id in lanes.given_up():
            message = f"{agent_id} gave up: its worker died 5 times in 10 minutes"
            log = logs / f"{agent_id}.log"
            facts = {"log": str(log), "says": _last_line(log)}
            raise LabmatesError(message, facts=facts, mend=resume)
        for agent_id, code in lanes.failed():
            log = logs / f"{agent_id}.log"
            message = f"{agent_id} ended with exit code {code}"
            facts = {"log": str(log), "says": _last_line(log)}
            raise _CLASSES.get(code, LabmatesError)(message, facts=facts, mend=resume, tail="")


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return "nothing"
    named = [line for line in lines if line.startswith("labmates:")]
    return (named or lines or ["nothing"])[-1][:300]


def _outcome(context: GoalContext, watched: Watched, *, stopped: str, detached: bool) -> Outcome:
    phase = watched.view().phase
    code = {Phase.DONE: 0, Phase.ESCALATE: 1}.get(phase, 130) if phase else 130
    return Outcome(
        goal_id=context.goal_id,
        exit_code=0 if detached else 130 if stopped else code,
        stopped=stopped,
        detached=detached,
        live=tuple(sorted(live_lanes(context))),
        claims=dict(watched.state.claims),
        workspace=context.git.repo,
        watched=watched,
    )
