"""Measure solution.py by a laxer protocol, as published evaluators of this task do.

    python published.py --split dev|holdout

Three fixed problems; solution and reference in one process, one after the other; the wall clock;
the best of several calls on the same problem; the last answer checked. It gives more than
evaluate.py for the same code and believes whatever solution.py does to it, so its number decides
nothing: it is printed beside the strict one. Prints {"pass", "score", "label", "detail"}.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy is imported

import argparse
import json
import pathlib
import time

import numpy as np

import solution
import task

HOLDOUT_SEEDS = (101, 211, 307)
CALLS = 5


def best_time(solve, problem):
    """Give the shortest wall time of several calls in seconds, and the last answer."""
    solve(problem)
    times = []
    answer = None
    for _ in range(CALLS):
        start = time.perf_counter()
        answer = solve(problem)
        times.append(time.perf_counter() - start)
    return min(times), answer


def main():
    """Measure the three problems of a split and print the mean of their speed-ups."""
    parser = argparse.ArgumentParser(description="Measure solution.py by a laxer protocol.")
    parser.add_argument("--split", choices=("dev", "holdout"), default="dev")
    split = parser.parse_args().split
    data = pathlib.Path(__file__).resolve().parent / "data" / "dev_seeds.json"
    seeds = json.loads(data.read_text())["dev"] if split == "dev" else HOLDOUT_SEEDS
    ratios, exact = [], 0
    for seed in seeds:
        problem = task.draw_problem([seed])
        reference_s, expected = best_time(task.solve, problem)
        candidate_s, answer = best_time(solution.solve, problem)
        exact += np.array_equal(expected, answer)
        ratios.append(round(reference_s / candidate_s, 3))
    passed = exact == len(ratios)
    result = {
        "pass": passed,
        "score": sum(ratios) / len(ratios) if passed else None,
        "label": f"{exact}/{len(ratios)} exact",
        "detail": {"split": split, "protocol": "published", "ratios": ratios},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
