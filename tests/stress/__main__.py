"""The load under faults: N processes of light agents, killed and stopped at random, then the audit.

    python -m tests.stress --steps 100000 --processes 8 --seed 1

Prints one JSON line with what was done and every wrong that was found; exit 1 if there was one. The
processes are forked, so that a new life costs milliseconds, and a kill hits the work.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, server_status, stop_server
from contracts.store.reader import Reader
from tests.stress.agents import Spec, run
from tests.stress.audit import BY_OPERATOR, Audit, audit_goal, read_logs
from tests.support import wait_until

FORK = multiprocessing.get_context("fork")


@dataclass
class Load:
    """The processes and the faults that befall them."""

    spec: Spec
    steps: int
    kill_every_s: float
    server_kills: int
    draw: random.Random
    lives: list[BaseProcess] = field(default_factory=list)
    specs: list[Spec] = field(default_factory=list)
    stopped: dict[int, float] = field(default_factory=dict)
    kills: int = 0
    stops: int = 0
    crashes: int = 0
    servers_killed: int = 0
    done: int = 0
    read: dict[Path, int] = field(default_factory=dict)

    def start(self) -> None:
        """Start every process."""
        for number in range(1, self.spec.processes + 1):
            self.specs.append(replace(self.spec, number=number))
            self.lives.append(self._live(self.specs[-1]))

    def _live(self, spec: Spec) -> BaseProcess:
        process = FORK.Process(target=run, args=(spec,))
        process.start()
        return process

    def count(self) -> int:
        """Count the steps that were acknowledged so far, in what the logs have grown by."""
        for path in self.spec.folder.glob("*.log"):
            with path.open("rb") as file:
                file.seek(self.read.get(path, 0))
                text = file.read()
            self.read[path] = self.read.get(path, 0) + len(text)
            operator = sum(text.count(f" {name} ".encode()) for name in BY_OPERATOR)
            self.done += text.count(b"\n") - operator
        return self.done

    def over(self) -> bool:
        """Tell whether enough was done, or the file `stop` asks for the end."""
        if (self.spec.folder / "stop").exists():
            return True
        if self.server_kills:
            return self.servers_killed >= self.server_kills
        return self.count() >= self.steps

    def drive(self) -> None:
        """Let faults happen until enough was done, then let the processes end."""
        kill_at = time.monotonic() + self.kill_every_s
        server_at = time.monotonic() + 0.5
        while not self.over():
            time.sleep(0.02)  # faults have their moments, and nobody else tells them
            now = time.monotonic()
            self._tend(now)
            if self.kill_every_s and now >= kill_at:
                self._strike(now)
                kill_at = now + self.draw.uniform(0.2, 1.8) * self.kill_every_s
            if self.server_kills and now >= server_at:
                self._kill_server()
                server_at = time.monotonic() + self.draw.uniform(0.05, 0.6)
        self.finish()

    def _tend(self, now: float) -> None:
        """Let stopped processes go on, and start those that ended."""
        for position, until in list(self.stopped.items()):
            if now >= until:
                os.kill(self.lives[position].pid or 0, signal.SIGCONT)
                del self.stopped[position]
        for position, process in enumerate(self.lives):
            if process.is_alive():
                continue
            process.join()
            if process.exitcode not in {0, -signal.SIGKILL}:
                self.crashes += 1
            if process.exitcode == 0:
                continue
            self.stopped.pop(position, None)
            spec = replace(self.specs[position], life=self.specs[position].life + 1)
            self.specs[position], self.lives[position] = spec, self._live(spec)

    def _strike(self, now: float) -> None:
        position = self.draw.randrange(len(self.lives))
        pid = self.lives[position].pid or 0
        if not self.lives[position].is_alive():
            return
        if position in self.stopped or self.draw.random() < 0.8:
            self.kills += 1
            os.kill(pid, signal.SIGKILL)
            return
        self.stops += 1
        os.kill(pid, signal.SIGSTOP)
        self.stopped[position] = now + self.draw.uniform(0, 2) * self.spec.lease_ms / 1000

    def _kill_server(self) -> None:
        home = self.spec.home
        if home is None:
            return
        before = self.count()
        wait_until(lambda: self.count() > before, description="writes", timeout_s=60)
        pid = server_status(home).pid
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        self.servers_killed += 1
        ensure_server(home)

    def finish(self) -> None:
        """End the processes in order; one that does not is a wrong of its own."""
        (self.spec.folder / "stop").touch()
        for position in list(self.stopped):
            os.kill(self.lives[position].pid or 0, signal.SIGCONT)
        for process in self.lives:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()
                self.crashes += 1
            elif process.exitcode not in {0, -signal.SIGKILL}:
                self.crashes += 1


def audit_part(url: str, logs: dict[str, list[str]], goals: list[str], place: Path) -> None:
    """Audit some goals and leave what was found as JSON."""
    client = connect(url)
    found = Audit()
    for goal_id in goals:
        found.add(audit_goal(Reader(client, goal_id), logs[goal_id]))
    place.write_text(json.dumps(asdict(found)))


def audit_all(url: str, folder: Path) -> Audit:
    """Audit every goal of a load, by two processes at once."""
    logs = read_logs(folder)
    goals = sorted(logs)
    parts = []
    for number in (0, 1):
        arguments = (url, logs, goals[number::2], folder / f"{number}.json")
        parts.append(FORK.Process(target=audit_part, args=arguments))
        parts[-1].start()
    total = Audit()
    for number, part in enumerate(parts):
        part.join()
        if part.exitcode != 0:
            total.wrongs.append(f"an audit ended with {part.exitcode}")
            continue
        total.add(Audit(**json.loads((folder / f"{number}.json").read_text())))
    total.goals = len(goals)
    return total


def main() -> int:
    """Run the load, audit, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--kill-every", type=float, default=0.4, metavar="SECONDS")
    parser.add_argument("--server-kills", type=int, default=0, metavar="N")
    parser.add_argument("--appendfsync", choices=["always", "everysec"], default="always")
    parser.add_argument("--lease-ms", type=int, default=1000)
    parser.add_argument("--url", help="a server that runs already, instead of one of its own")
    parser.add_argument(
        "--folder", type=Path, help="for the logs; a file `stop` in it ends the load"
    )
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lm-", dir="/tmp"))
    home = None if asked.url else root / "home"
    if home is not None:
        (root / "run").mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(root / "run")
    folder = asked.folder or root / "logs"
    folder.mkdir()
    print(f"seed {asked.seed}, {root}", file=sys.stderr, flush=True)
    wrongs = ["the run ended early"]
    try:
        url = asked.url or ensure_server(home, appendfsync=asked.appendfsync)
        os.environ["LABMATES_APPENDFSYNC"] = asked.appendfsync
        goals = f"stress-{asked.seed:x}"
        spec = Spec(url, home, folder, 0, asked.processes, goals, asked.lease_ms, asked.seed)
        draw = random.Random(asked.seed)
        load = Load(spec, asked.steps, asked.kill_every, asked.server_kills, draw)
        begin = time.monotonic()
        load.start()
        try:
            load.drive()
        finally:
            for process in load.lives:
                with suppress(ProcessLookupError):
                    process.kill()
        between = time.monotonic()
        audit = audit_all(url, folder)
        wrongs = audit.wrongs + [f"{load.crashes} processes crashed"] * bool(load.crashes)
        report = {
            "seed": asked.seed,
            **{name: value for name, value in asdict(audit).items() if name != "wrongs"},
            "kills": load.kills,
            "stops": load.stops,
            "servers_killed": load.servers_killed,
            "load_s": round(between - begin, 1),
            "audit_s": round(time.monotonic() - between, 1),
            "wrongs": wrongs[:20],
        }
        print(json.dumps(report), flush=True)
    finally:
        if home is not None:
            stop_server(home)
        if not wrongs or asked.folder:
            shutil.rmtree(root)
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
