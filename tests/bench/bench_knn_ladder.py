"""Measure the prepared changes of the knn preset by its strict evaluator, and by the laxer one.

    python -m tests.bench.bench_knn_ladder [ROUNDS]

Prints for each change the median and the range of the scores of ROUNDS rounds (default 8) on both
splits, the wall time of a round, and the laxer protocol's held-out number.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.knn import PRESET, change, checkout, environment, evaluate


def laxer(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "published.py", "--split", "holdout"],
        cwd=folder,
        env=environment(None, None),
        capture_output=True,
        text=True,
        check=True,
    )
    score = json.loads(done.stdout)["score"]
    return "-" if score is None else f"{score:.1f}"


def strict(folder: Path, split: str, rounds: int) -> str:
    start = time.monotonic()
    results = [evaluate(folder, split=split, seed=seed).result for seed in range(rounds)]
    wall_s = (time.monotonic() - start) / rounds
    scores = [result["score"] for result in results if result["pass"]]
    if not scores:
        return f"{results[0]['label']:22s} {wall_s:.2f} s"
    spread = f"[{min(scores):.2f}, {max(scores):.2f}]"
    return f"{statistics.median(scores):5.2f} {spread:16s} {wall_s:.2f} s"


def main(rounds: int) -> None:
    names = ["", *(p.parent.name for p in sorted(PRESET.changes.glob("*/solution.py")))]
    print(f"{'change':16s} {'dev':29s} {'held-out':29s} laxer")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            place = checkout(Path(folder) / "w", change(name) if name else None)
            columns = [strict(place, split, rounds) for split in ("dev", "holdout")]
            last = "-" if "autotune" in name else laxer(place)
            print(f"{name or 'the reference':16s} {columns[0]:29s} {columns[1]:29s} {last}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
