"""`labmates plan --check`: the metric command's first run, on real processes."""

import json
from pathlib import Path

import psutil
import pytest

from contracts.errors import PreconditionError
from roles.cli import run
from roles.goal.contract_file import read_contract
from roles.goal.first_run import FirstRun, first_run
from tests.contracts_on_disk import CONTRACT, changed, make_project
from tests.integration.roles.repositories import snapshot
from tests.support import wait_until

SHORT = ("timeout_s = 5", "timeout_s = 1")


def check(folder: Path, bench: str, *, contract: str = CONTRACT) -> FirstRun:
    git = make_project(folder / "sorter", contract=contract, bench__py=bench)
    before = snapshot(git.repo)
    try:
        return first_run(read_contract(git.repo))
    finally:
        assert snapshot(git.repo) == before


def refusal(folder: Path, bench: str, *, contract: str = CONTRACT) -> PreconditionError:
    with pytest.raises(PreconditionError) as caught:
        check(folder, bench, contract=contract)
    assert caught.value.exit_code == 5
    assert "command" in caught.value.facts
    return caught.value


def test_the_number_of_a_sound_command_is_shown(tmp_path: Path) -> None:
    assert check(tmp_path, "print('seconds', 0.75)\n").score == 0.75


def test_a_command_that_prints_nothing_is_shown_with_its_stderr(tmp_path: Path) -> None:
    found = refusal(tmp_path, "import sys\nprint('speedup 1.02', file=sys.stderr)\n")
    assert found.message == "the metric command printed no number on stdout"
    assert found.facts["stdout"] == "(empty)"
    assert found.facts["stderr"] == "speedup 1.02"
    assert found.facts["why"].endswith("this one is on stderr")
    assert "(exit code 0, " in found.facts["command"]


@pytest.mark.parametrize(
    ("bench", "says"),
    [
        ("print('nan')", "not finite nan"),
        ("print('-inf')", "not finite -inf"),
        ("print('score: 0,95')", "not a number 0,95"),
        (
            "print('labmates: {\"score\": 1}')\nprint('labmates: {\"score\": 2}')",
            'two results {"score": 1} and {"score": 2}',
        ),
        ("print('labmates: {\"score\": true}')", "score must be a number, not true"),
    ],
)
def test_a_command_whose_number_is_not_clear_is_shown_with_the_text(
    tmp_path: Path, bench: str, says: str
) -> None:
    found = refusal(tmp_path, bench + "\n")
    assert found.message.startswith("the metric command printed no clear score: ")
    assert says in found.message
    assert found.facts["stdout"] != "(empty)"


def test_a_command_that_never_ends_is_ended(tmp_path: Path) -> None:
    bench = "import time\nprint(0.5, flush=True)\nwhile True:\n    time.sleep(1)\n"
    found = refusal(tmp_path, bench, contract=changed(SHORT))
    assert found.message == "the metric command had not ended after 1 s"
    assert found.facts["stdout"] == "0.5"


def test_a_command_that_leaves_a_child_is_named_and_the_child_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    bench = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "    start_new_session=True, stdout=subprocess.DEVNULL)\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "print(0.5)\n"
    )
    found = refusal(tmp_path, bench)
    assert found.message == "the metric command left processes behind"
    pid = int(note.read_text())
    assert str(pid) in found.facts["left"]
    wait_until(lambda: not psutil.pid_exists(pid), description="the child is gone")


def test_field_case_74_a_score_before_a_failure_does_not_count(tmp_path: Path) -> None:
    found = refusal(tmp_path, "print('score=0.99')\nraise SystemExit(3)\n")
    assert found.message == "the metric command failed with exit code 3"


def test_a_base_commit_that_fails_its_own_evaluation_is_refused(tmp_path: Path) -> None:
    bench = 'print(\'labmates: {"pass": false, "label": "0/12 exact"}\')\n'
    found = refusal(tmp_path, bench)
    assert found.message.endswith("the base commit is wrong: 0/12 exact")


def test_a_result_file_that_is_missing_is_named(tmp_path: Path) -> None:
    contract = changed(('dev = "python', 'channel = "file"\ndev = "python'))
    assert "$LABMATES_RESULT" in refusal(tmp_path, "print(0.5)\n", contract=contract).message


def test_the_command_gets_a_result_file_a_seed_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", "redis://secret@host")
    monkeypatch.setenv("MY_TOKEN", "secret")
    contract = changed(('dev = "python', 'channel = "file"\nseed = "drawn"\ndev = "python'))
    bench = (
        "import json, os\n"
        "assert 'MY_TOKEN' not in os.environ and 'LABMATES_STORE_URL' not in os.environ\n"
        "assert not os.path.exists('.git')\n"
        "with open(os.environ['LABMATES_RESULT'], 'x') as file:\n"
        "    json.dump({'pass': True, 'score': int(os.environ['LABMATES_SEED']) + 0.5}, file)\n"
    )
    assert check(tmp_path, bench, contract=contract).score == 1.5


def test_the_command_shows_the_number_and_a_failure_is_exit_code_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_project(tmp_path / "sound").repo)
    assert run(["plan", "--check"]) == 0
    assert "First run  0.75   (python3 bench.py --split dev, " in capsys.readouterr().out
    assert run(["plan", "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_run"]["score"] == 0.75
    monkeypatch.chdir(make_project(tmp_path / "silent", bench__py="pass\n").repo)
    assert run(["plan", "--check"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("labmates: the metric command printed no number on stdout\n")
    assert err.endswith("Nothing was written.\n")
    assert run(["plan"]) == 0  # without --check nothing is run
