"""Rounds on real processes: the result file is the evaluator's, and nothing outlives a round."""

from pathlib import Path

import psutil
import pytest

from contracts.errors import MachineError
from contracts.words import Split
from roles.goal.contract_file import read_contract
from roles.measuring.measurement import Bench
from roles.measuring.rounds import Round
from tests.contracts_on_disk import changed, make_project

FILE = changed(('metric = "seconds"', 'metric = "seconds"\nchannel = "file"'))
WRITE = """
import json, os, subprocess, sys
path = os.environ.pop("LABMATES_RESULT")
with open(path, "x") as file:
    json.dump({"pass": True, "score": 1.0}, file)
"""
CALL_CANDIDATE = "subprocess.run([sys.executable, '-S', 'solution.py'], env={})\n"
OVERWRITE = """
from pathlib import Path
places = [Path("../out/result.json"), *Path("../..").rglob("result.json")]
for place in places:
    if place.exists():
        place.write_text('{"pass": true, "score": 99.0}')
"""
DETACH = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.execve("/bin/sleep", ["sleep", "871"], {})
    os._exit(0)
os.wait()
"""


def bench(tmp_path: Path, evaluator: str, solution: str = "") -> Bench:
    git = make_project(
        tmp_path / "sorter", contract=FILE, bench__py=evaluator, solution__py=solution
    )
    contract = read_contract(git.repo).contract
    scratch = tmp_path / "scratch"
    return Bench(
        contract=contract, git=git, scratch=scratch, log_path=tmp_path / "log", stop=lambda: False
    )


def one_round(tmp_path: Path, evaluator: str, solution: str = "") -> Round:
    found = bench(tmp_path, evaluator, solution)
    return found.round(found.contract.base_commit, Split.DEV, None)


def test_field_case_88_a_candidate_cannot_overwrite_the_result_beside_its_checkout(
    tmp_path: Path,
) -> None:
    found = one_round(tmp_path, WRITE + CALL_CANDIDATE, OVERWRITE)
    assert (found.score, found.failure) == (1.0, "")


def test_the_result_lies_in_a_secret_folder_that_goes_with_the_round(tmp_path: Path) -> None:
    show = (
        "folder = os.path.dirname(path)\n"
        "print(path, oct(os.stat(folder).st_mode), oct(os.stat(folder + '/..').st_mode))\n"
    )
    seen = [one_round(tmp_path / name, WRITE + show).process.stdout.split() for name in "ab"]
    assert [modes for _, *modes in seen] == [["0o40700", "0o40300"]] * 2
    first, second = (Path(path) for path, *_ in seen)
    assert first.parent.name != second.parent.name
    assert len(first.parent.name) == 32
    assert not first.is_relative_to(tmp_path)
    assert not first.parent.parent.exists()


def test_field_case_44_a_candidate_that_leaves_a_process_is_wrong(tmp_path: Path) -> None:
    found = one_round(tmp_path, WRITE + CALL_CANDIDATE, DETACH)
    assert (found.score, found.failure, found.label) == (None, "wrong", "processes left")
    assert [name.split(" ", 1)[1] for name in found.process.leftovers] == ["sleep 871"]
    assert not psutil.pid_exists(int(found.process.leftovers[0].split(" ", 1)[0]))


def test_a_champion_that_leaves_a_process_is_the_machines_fault(tmp_path: Path) -> None:
    found = bench(tmp_path, WRITE + CALL_CANDIDATE, DETACH)
    with pytest.raises(MachineError) as caught:
        found.alone(found.contract.base_commit, Split.DEV)
    assert caught.value.facts["label"] == "processes left"


@pytest.mark.parametrize(
    "trick",
    [
        "os.link(path, path + '2')",
        "os.rename(path, path + '2'); os.symlink(path + '2', path)",
        "os.remove(path); os.mkfifo(path)",
        "os.remove(path); os.mkdir(path)",
    ],
)
def test_field_case_88_a_result_that_is_no_plain_file_of_one_name_is_none(
    trick: str, tmp_path: Path
) -> None:
    found = one_round(tmp_path, f"{WRITE}{trick}\n")
    assert (found.score, found.label[:14]) == (None, "no result file")
