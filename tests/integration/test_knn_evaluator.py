"""The strict evaluator of the knn preset, as a command."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.knn import change, checkout, environment, evaluate, rounds
from tests.support import wait_until


def processes_in(folder: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or [])
    ]


def busy_in(folder: Path) -> bool:
    """Tell whether a process of the folder has used more CPU time than its start needs."""
    for pid in processes_in(folder):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).cpu_times().user > 1:
                return True
    return False


def solving(body: str, head: str = "") -> str:
    return f"import numpy as np\n{head}\n\ndef solve(problem):\n    {body}\n"


def test_the_reference_against_itself_is_about_one(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w")
    scores = []
    for result in rounds(folder):
        assert (result["pass"], result["label"]) == (True, "6/6 exact")
        scores.append(result["score"])
        if 0.9 < scores[-1] < 1.1:
            break
    assert 0.9 < scores[-1] < 1.1, scores


def test_a_round_says_what_it_measured_and_under_which_bounds(tmp_path: Path) -> None:
    detail = evaluate(checkout(tmp_path / "w"), seed=12).result["detail"]
    assert (detail["split"], detail["seed"][0]) == ("dev", 12)
    assert [len(detail["cpu_ms"][side]) for side in ("reference", "candidate")] == [5, 5]
    assert detail["bounds"] == ["capabilities", "landlock", "seccomp"]


def test_splits_differ_and_the_seed_of_the_held_out_one_is_drawn_anew(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w", change("07-block-minima"))
    dev = [evaluate(folder, seed=None).result["detail"]["seed"] for _ in range(2)]
    held = [evaluate(folder, split="holdout", seed=None).result["detail"]["seed"] for _ in range(2)]
    assert dev[0] == dev[1]
    assert dev[0][:-1] == json.loads((folder / "data" / "dev_seeds.json").read_text())["dev"]
    assert held[0] != held[1]
    same = [evaluate(folder, split=s, seed=3).result["detail"]["seed"] for s in ("dev", "holdout")]
    assert same[0][0] == same[1][0] == 3
    assert same[0] != same[1]


def test_without_a_result_path_the_result_is_one_line_for_people(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w", change("07-block-minima"))
    done = subprocess.run(
        [sys.executable, "evaluate.py"],
        cwd=folder,
        env=environment(1, None),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["pass"] is True
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("kind", ["file", "link", "fifo"])
def test_field_case_88_a_result_file_that_is_there_already_is_not_used(
    kind: str, tmp_path: Path
) -> None:
    folder, path = checkout(tmp_path / "w", change("07-block-minima")), tmp_path / "result.json"
    match kind:
        case "file":
            path.write_text('{"score": 99}')
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            os.mkfifo(path)
    done = subprocess.run(
        [sys.executable, "evaluate.py"],
        cwd=folder,
        env=environment(1, path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "the result file cannot be made" in done.stderr
    assert not (tmp_path / "elsewhere").exists()
    assert kind != "file" or path.read_text() == '{"score": 99}'


def test_the_result_file_is_its_owners_alone(tmp_path: Path) -> None:
    folder, path = checkout(tmp_path / "w", change("07-block-minima")), tmp_path / "result.json"
    subprocess.run(
        [sys.executable, "evaluate.py"], cwd=folder, env=environment(1, path), check=True
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", "nan"])
def test_a_seed_that_is_no_number_is_wrong_usage(seed: str, tmp_path: Path) -> None:
    done = evaluate(checkout(tmp_path / "w"), seed=seed)
    assert (done.code, done.result) == (2, {})
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("solution", "label", "reason"),
    [
        ("def solve(", "crash", "SyntaxError"),
        ("import nothing_of_that_name", "crash", "ModuleNotFoundError"),
        ("x = 1", "crash", "AttributeError"),
        (solving("raise ValueError('no idea')"), "crash", "ValueError: no idea"),
        (solving("import os; os._exit(3)"), "crash", "ended with 3"),
        (solving("return np.zeros((9, 9))"), "crash", "shape (200, 10) was expected"),
        (solving("return None"), "crash", "was expected"),
        (solving("return bytearray(1 << 40)"), "crash", "MemoryError"),
        (solving("return np.zeros((200, 10), int)"), "0/6 exact", ""),
    ],
)
def test_a_candidate_that_fails_has_no_score_and_a_reason(
    solution: str, label: str, reason: str, tmp_path: Path
) -> None:
    done = evaluate(checkout(tmp_path / "w", solution))
    assert (done.code, done.stderr) == (0, "")
    assert (done.result["pass"], done.result["score"], done.result["label"]) == (False, None, label)
    assert reason in done.result["detail"].get("reason", "")


def test_one_wrong_answer_among_right_ones_is_no_score(tmp_path: Path) -> None:
    text = change("07-block-minima") + (
        "\n\ncalls = []\nright = solve\n\n\ndef solve(problem):\n    calls.append(1)\n"
        "    answer = right(problem)\n    if len(calls) == 4:\n"
        "        answer[17, [8, 9]] = answer[17, [9, 8]]\n    return answer\n"
    )
    result = evaluate(checkout(tmp_path / "w", text)).result
    assert (result["pass"], result["score"], result["label"]) == (False, None, "5/6 exact")


@pytest.mark.parametrize("place", ["import", "call"])
def test_research_case_18_silence_ends_at_its_own_limit_and_leaves_no_process(
    place: str, tmp_path: Path
) -> None:
    hang = "while True: pass"
    solution = solving(hang) if place == "call" else hang
    folder = checkout(tmp_path / "w", solution)
    start = time.monotonic()
    result = evaluate(folder).result
    assert (result["pass"], result["score"], result["label"]) == (False, None, "timeout")
    assert time.monotonic() - start < 12
    assert processes_in(folder) == []


def test_the_children_end_with_an_evaluator_that_is_killed(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w", solving("while True: pass"))
    process = subprocess.Popen(
        [sys.executable, "evaluate.py"], cwd=folder, env=environment(1, tmp_path / "r")
    )
    try:
        wait_until(
            lambda: busy_in(folder) or process.poll() is not None,
            description="the candidate is in its endless loop",
            timeout_s=30,
        )
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not processes_in(folder), description="no child is left", timeout_s=30)
    assert not (tmp_path / "r").exists()


def test_research_case_15_a_reference_that_fails_is_the_machines_fault_and_no_result(
    tmp_path: Path,
) -> None:
    folder = checkout(tmp_path / "w")
    with (folder / "task.py").open("a") as file:
        file.write("\n\ndef solve(problem):\n    raise MemoryError\n")
    done = evaluate(folder)
    assert (done.code, done.result) == (3, {})
    assert "the reference failed (crash: MemoryError" in done.stderr


def test_field_case_98_files_beside_the_evaluator_stand_in_for_nothing(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w", change("07-block-minima"))
    for name in ("numpy", "json", "select", "subprocess", "sitecustomize", "types", "argparse"):
        (folder / f"{name}.py").write_text("raise SystemExit(9)\n")
    planted = folder / "__pycache__"
    planted.mkdir()
    source = tmp_path / "evil.py"
    source.write_text("raise SystemExit(9)\n")
    import py_compile

    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(source), str(tmp_path / "evil.pyc"), invalidation_mode=mode)
    for name in ("task", "jail", "solution", "child"):
        shutil.copy(str(compiled), planted / f"{name}.cpython-311.pyc")
    assert evaluate(folder).result["pass"] is True


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("01-product", 1.8, 5.0),
        ("02-loop", 0.1, 0.9),
        ("03-select", 3.5, 10.0),
        ("06-float32", 7.0, 18.0),
        ("07-block-minima", 12.0, 40.0),
    ],
)
def test_the_prepared_changes_are_exact_and_as_fast_as_the_queue_needs(
    name: str, low: float, high: float, tmp_path: Path
) -> None:
    folder = checkout(tmp_path / "w", change(name))
    scores = []
    for result in rounds(folder):
        assert (result["pass"], result["label"]) == (True, "6/6 exact")
        scores.append(result["score"])
        if low < scores[-1] < high:
            break
    assert low < scores[-1] < high, scores


@pytest.mark.parametrize(
    ("name", "label"), [("04-projection", "0/6 exact"), ("09-autotune", "timeout")]
)
def test_the_prepared_failures_fail_as_the_queue_needs(
    name: str, label: str, tmp_path: Path
) -> None:
    result = evaluate(checkout(tmp_path / "w", change(name))).result
    assert (result["pass"], result["score"], result["label"]) == (False, None, label)


@pytest.mark.parametrize("split", ["dev", "holdout"])
def test_the_laxer_protocol_prints_its_number(split: str, tmp_path: Path) -> None:
    folder = checkout(tmp_path / "w", change("07-block-minima"))
    done = subprocess.run(
        [sys.executable, "-B", "published.py", "--split", split],
        cwd=folder,
        env=environment(None, None),
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert (result["pass"], result["label"]) == (True, "3/3 exact")
    assert result["score"] > 7
