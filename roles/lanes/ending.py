"""Find the lanes of a goal on this machine, and end them: no process, no claim is left behind.

Two things are known of a lane: the process that its starter noted in the goal's folder (the parent
that restarts its worker), and the incarnation in the store (the worker). A pid is nobody without
its start time. A parent is told and passes it on; a worker without one is told itself.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

import psutil

from roles.goal.context import GoalContext
from roles.steps.lane import is_dead_here

_ROUNDS = (10.0, 5.0)


def note_lane(context: GoalContext, agent_id: str, pid: int) -> None:
    """Note a lane's process, so that it is found before its worker has enlisted."""
    folder = context.folder / "lanes"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(psutil.NoSuchProcess):
        start = f"{psutil.Process(pid).create_time():.2f}"
        (folder / f"{agent_id}.json").write_text(json.dumps({"pid": pid, "start": start}))


def live_lanes(context: GoalContext) -> dict[str, tuple[int, str]]:
    """Give agent -> (pid, start) of the incarnations that live on this machine."""
    found = {}
    for agent_id in context.reader.agent_ids():
        agent = context.reader.agent(agent_id)
        host, pid = agent.get("inc_host", ""), agent.get("inc_pid", "")
        start = agent.get("inc_start", "")
        if pid.isdigit() and host == os.uname().nodename and not is_dead_here(host, pid, start):
            found[agent_id] = (int(pid), start)
    return found


def lane_processes(context: GoalContext) -> dict[str, psutil.Process]:
    """Give agent -> the process to tell: its parent where that lives, else its worker."""
    found: dict[str, psutil.Process] = {}
    for agent_id, (pid, _) in live_lanes(context).items():
        with contextlib.suppress(psutil.NoSuchProcess):
            found[agent_id] = psutil.Process(pid)
    folder = context.folder / "lanes"
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            noted = json.loads(file.read_text())
            pid, start = int(noted["pid"]), str(noted["start"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not is_dead_here(os.uname().nodename, str(pid), start):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[file.stem] = psutil.Process(pid)
    return found


def end_lanes(
    context: GoalContext, *, patience_s: float = 20.0, tell: Callable[[str], None]
) -> list[str]:
    """End every lane of the goal on this machine; gives the agents that were ended.

    A lane gets `patience_s` seconds to end its step, then hands it back, then is killed with all
    that it started. A lane that is only starting, or between two lives of its worker, counts.
    """
    seen: set[str] = set()
    alive = lane_processes(context)
    for number, limit in enumerate((patience_s, *_ROUNDS)):
        told: set[int] = set()
        deadline = time.monotonic() + limit
        while alive and time.monotonic() < deadline:
            for agent_id, process in alive.items():
                if process.pid in told:
                    continue
                if agent_id not in seen:
                    tell(f"{agent_id}: ends after its step (pid {process.pid})")
                seen.add(agent_id)
                told.add(process.pid)
                _end(process, kill=number == len(_ROUNDS))
            psutil.wait_procs(list(alive.values()), timeout=0.2)
            alive = lane_processes(context)
    return sorted(seen - set(alive))


def _end(process: psutil.Process, *, kill: bool) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        if not kill:
            process.send_signal(signal.SIGTERM)
            return
        family = process.children(recursive=True)
        process.kill()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
