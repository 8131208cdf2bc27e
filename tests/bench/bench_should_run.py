"""How much `labmates quota should-run` costs over `python -c pass`: run it, read the ratio.

    python -m tests.bench.bench_should_run [ROUNDS]

Both programs run in turn, so that a busy machine slows both; the ratio is that of the medians. The
promise is at most 5 on a goal with 10 open todos. Starts a server of its own.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from contracts.store.connect import connect
from tests.conftest import session_server
from tests.integration.quota.goals import make_goal

LIMIT = 5.0


def seconds(argv: Sequence[str], env: dict[str, str]) -> float:
    """Run a program to its end and give its wall clock; a failing one is an error."""
    begin = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def ratio(url: str, goal_id: str, *, rounds: int, as_json: bool) -> tuple[float, float]:
    """Give the medians (s) of bare Python and of the command, run in turn."""
    script = str(Path(sys.executable).with_name("labmates"))
    ask = [script, "quota", "should-run", "--goal-id", goal_id, "--agent-id", "executor-1"]
    bare = [sys.executable, "-c", "pass"]
    env = {"PATH": os.environ["PATH"], "LABMATES_STORE_URL": url, "HOME": os.environ["HOME"]}
    if as_json:
        ask.append("--json")
    for argv in (bare, ask):
        seconds(argv, env)
    pairs = [(seconds(bare, env), seconds(ask, env)) for _ in range(rounds)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def main() -> int:
    """Print the ratios; 1 when the promised one is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 31
    worst = 0.0
    with session_server(None) as server:
        assert server.url
        with connect(server.url) as client:
            for todos in (10, 1000):
                goal = make_goal(client, f"bench-{todos}", low_water=str(todos + 1))
                for position in range(todos):
                    goal.propose(f"Idea {position}", rank=float(position))
                for as_json in (False, True):
                    bare, asked = ratio(server.url, goal.goal_id, rounds=rounds, as_json=as_json)
                    shape = "json" if as_json else "text"
                    found = asked / bare
                    print(
                        f"{todos:>5} todos, {shape}: {asked * 1000:6.1f} ms, bare Python"
                        f" {bare * 1000:6.1f} ms, ratio {found:.2f} (at most {LIMIT:g})"
                    )
                    if todos == 10:
                        worst = max(worst, found)
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
