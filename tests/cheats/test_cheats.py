"""Edits of solution.py alone that score high on evaluators that lack a defence.

Each must end without a score, for the reason named here, or with no more than honest brute force
gets (1.0, and noise).
"""

from pathlib import Path

import pytest

from tests.knn import checkout, evaluate, rounds

SOLUTIONS = Path(__file__).parent / "solutions"
NOT_ABOVE = 1.1

REFUSED = {
    "agreeable_object": ("crash", "an integer array of shape (200, 10) was expected: object"),
    "answer_early": ("forbidden", "it answered before it was asked"),
    "edit_checker": ("crash", "PermissionError"),
    "exit_with_score": ("forbidden", "its reply does not belong to what it was asked"),
    "helper_process": ("forbidden", "it tried to start a process"),
    "helper_thread": ("forbidden", "it tried to start a process"),
    "huge_answer": ("crash", "an integer array of shape (200, 10) was expected"),
    "idle_thread": ("forbidden", "it tried to start a process"),
    "known_seeds": ("0/6 exact", ""),
    "lazy_subclass": ("0/6 exact", ""),
    "leave_quietly": ("crash", "SystemExit"),
    "memo_identity": ("1/6 exact", ""),
    "not_a_number": ("crash", "an integer array of shape (200, 10) was expected: float64"),
    "order": ("0/6 exact", ""),
    "orphan_process": ("forbidden", "it tried to start a process"),
    "replace_checker": ("0/6 exact", ""),
    "run_program": ("forbidden", "it tried to start a process"),
    "warm_up": ("1/6 exact", ""),
}
NOT_FASTER = {
    "lazy_result",
    "memo_content",
    "memo_on_disk",
    "patch_clock",
    "plant_result",
    "print_score",
    "read_others",
    "slow_reference",
}
# Where the kernel offers no bounds, the evaluator must find these by looking.
FOUND_BY_LOOKING = {
    "helper_process": "it started a process",
    "idle_thread": "it runs 2 threads",
    "orphan_process": "it started a process",
    "run_program": "it started a process",
}


def cheat(name: str, tmp_path: Path) -> Path:
    return checkout(tmp_path / "checkout", (SOLUTIONS / f"{name}.txt").read_text())


def test_every_cheat_has_its_expected_end() -> None:
    assert {path.stem for path in SOLUTIONS.iterdir()} == set(REFUSED) | NOT_FASTER
    assert set(REFUSED).isdisjoint(NOT_FASTER)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_cheat_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    folder = cheat(name, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = evaluate(folder)
    label, reason = REFUSED[name]
    assert done.code == 0
    assert (done.result["pass"], done.result["score"], done.result["label"]) == (False, None, label)
    assert reason in done.result["detail"].get("reason", "")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", sorted(NOT_FASTER))
def test_a_cheat_scores_no_more_than_honest_brute_force(name: str, tmp_path: Path) -> None:
    folder = cheat(name, tmp_path)
    scores = []
    for result in rounds(folder):
        assert (result["pass"], result["label"]) == (True, "6/6 exact"), result
        scores.append(result["score"])
        if scores[-1] <= NOT_ABOVE:
            break
    assert min(scores) <= NOT_ABOVE


def test_research_case_6_a_planted_result_is_nowhere_to_be_found(tmp_path: Path) -> None:
    folder = cheat("plant_result", tmp_path)
    done = evaluate(folder)
    assert done.result["score"] != 99.0
    assert not (folder / "result.json").exists()
    assert not Path("/tmp/labmates-result.json").exists()
    assert done.stdout == ""


def test_answers_kept_on_disk_do_not_help_the_next_round_of_the_same_seed(tmp_path: Path) -> None:
    folder = cheat("memo_on_disk", tmp_path)
    scores = [evaluate(folder, seed=5).result["score"] for _ in range(3)]
    assert min(scores[1:]) <= NOT_ABOVE


@pytest.mark.parametrize("name", sorted(FOUND_BY_LOOKING))
def test_without_bounds_of_the_kernel_helpers_are_found(name: str, tmp_path: Path) -> None:
    folder = cheat(name, tmp_path)
    jail = folder / "jail.py"
    text = jail.read_text()
    assert text.count("def seal():\n") == 1
    jail.write_text(text.replace("def seal():\n", "def seal():\n    return []\n"))
    done = evaluate(folder)
    assert done.result["label"] == "forbidden"
    assert FOUND_BY_LOOKING[name] in done.result["detail"]["reason"]
