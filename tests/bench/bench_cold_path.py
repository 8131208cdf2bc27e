"""How much an import costs over a bare interpreter; ratios, since seconds depend on the machine."""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
IMPORTS = {
    "nothing": "pass",
    "contracts.errors": "import contracts.errors",
    "the cold path": "import roles.cli, quota.cold",
    "the models": "import contracts.models",
}


def seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def test_the_cost_of_imports_is_printed() -> None:
    taken: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(ROUNDS):
        for name, code in IMPORTS.items():
            taken[name].append(seconds(code))
    bare = statistics.median(taken["nothing"])
    print()
    for name, samples in taken.items():
        middle = statistics.median(samples)
        low, high = min(samples) / bare, max(samples) / bare
        print(f"{name:20} {middle * 1000:7.1f} ms  {middle / bare:5.2f}x [{low:.2f}, {high:.2f}]")
