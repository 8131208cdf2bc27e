"""`demo --execute --headless` on a preset that takes seconds: to its end, stopped, attached, resumed."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from contracts.store.embedded import server_status
from roles.goal.context import open_context
from roles.lanes.ending import end_lanes, live_lanes
from tests.conftest import session_server
from tests.integration.demo.tiny import make_preset, start_demo
from tests.support import wait_until
from tests.tiny import labmates

pytestmark = [pytest.mark.usefixtures("server_of_home"), pytest.mark.timeout(400)]
LANES = {"curator-1", "proposer-1", "executor-1", "evaluator-1"}
SLOW = {f"step_{n}": {"value.txt": f"{1 + n / 5}\n"} for n in range(1, 30)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_preset(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Give a preset that takes half a minute or more, to be disturbed."""
    make_preset(tmp_path / "slow", changes=SLOW)
    return tmp_path / "slow"


@contextmanager
def running(
    folder: Path, *options: str, until: str = "", goal_id: str = "tiny-1"
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Start a run, wait for a line that holds `until`; end it and its lanes at the end."""
    process = start_demo(folder, *options)
    lines: list[str] = []
    assert process.stdout
    stream = process.stdout
    reader = threading.Thread(target=lambda: lines.extend(iter(stream.readline, "")), daemon=True)
    reader.start()
    try:
        wait_until(
            lambda: process.poll() is not None or any(until in line for line in lines),
            description=f"{until!r} in the output",
            timeout_s=150,
        )
        yield process, lines
        reader.join(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if (Path(os.environ["LABMATES_HOME"]) / "goals" / goal_id / "goal.json").exists():
            end_lanes(open_context(goal_id), patience_s=5, tell=lambda _: None)
        reader.join(timeout=10)
        stream.close()
        assert process.stderr
        process.stderr.close()


def run_whole(folder: Path, *options: str) -> tuple[int, str, str]:
    process = start_demo(folder, *options)
    out, err = process.communicate(timeout=150)
    return process.returncode, out, err


def test_a_run_ends_with_what_was_kept_and_refuted_and_a_second_one_is_a_new_goal(
    folder: Path, store_home: Path
) -> None:
    code, out, err = run_whole(folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("0:00  operator     proposed the contract ")
    assert lines[1].endswith("(the demo approves its own contract)")
    text = "\n".join(line[6:] for line in lines)
    for said in (
        "curator-1    promoted hyp_0001, champion 2.0",
        "evaluator-1  contradicted hyp_0002: regression, dev 0.5",
        "evaluator-1  contradicted hyp_0003: correctness, 0/1 exact",
        "evaluator-1  contradicted hyp_0004: boundary, bench.py",
        "retired hyp_0005: no gain, 1.0",
        "retired hyp_0006: retry exhausted",
        "done         6.0",
    ):
        assert said in text, said
    summary = out[out.index("\ndone: ") + 1 :].splitlines()
    assert "on held-out [" in summary[0]
    assert "target 5.00x." in summary[0]
    shown = "\n".join(summary)
    assert "  kept       2   double 2.0" in shown
    assert "  refuted    3   worse (slower), wrong (wrong answers), boundary (boundary)" in shown
    assert "  no gain    1   same: low end 1.0" in shown
    assert "  no score   1   hang (two timeouts)" in shown
    assert "clean in all promoted; 1 edit refused (bench.py is protected)" in shown
    assert "  See it     labmates champion diff   branch labmates/tiny-1/champion, " in shown
    assert "All lanes ended, no claim is open." in shown
    assert summary[-1] == f"Workspace: {store_home}/demo/tiny-1"
    assert out.isascii()
    assert labmates("verify").returncode == 0
    assert live_lanes(open_context("tiny-1")) == {}

    code, out, err = run_whole(folder, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["goal_id"], document["phase"], document["live"]) == ("tiny-2", "done", [])
    assert document["next"][0] == ["labmates", "champion", "diff", "--goal-id", "tiny-2"]


def test_ctrl_c_drains_the_lanes_and_resume_goes_on_with_the_same_goal(slow: Path) -> None:
    with running(slow, until="promoted hyp_0001") as (process, lines):
        process.send_signal(signal.SIGINT)
        assert process.wait(150) == 130
    assert live_lanes(open_context("tiny-1")) == {}
    text = "".join(lines)
    assert "stopped by you at " in text
    assert "Go on: labmates demo --execute --headless --resume" in text
    assert "All lanes ended, no claim is open." in text
    with running(slow, "--resume", until="started attempt 6 ") as (process, lines):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(150) == 130
    assert "0:00  operator     proposed the contract" in lines[0]
    assert open_context("tiny-1").reader.goal()["status"] == "approved"
    assert live_lanes(open_context("tiny-1")) == {}


def test_a_second_run_watches_the_first_and_its_ctrl_c_only_looks_away(slow: Path) -> None:
    with running(slow, until="promoted hyp_0001") as (first, _):
        with running(slow, until="promoted hyp_0001", goal_id="") as (second, lines):
            second.send_signal(signal.SIGINT)
            assert second.wait(30) == 0
        assert "tiny-1 runs already" in lines[0]
        assert "tiny-1 runs on without this window" in lines[-1]
        assert first.poll() is None
        assert set(live_lanes(open_context("tiny-1"))) == LANES
        first.send_signal(signal.SIGINT)
        assert first.wait(150) == 130


def test_lanes_go_on_when_the_demo_is_killed_and_the_next_one_tends_them(slow: Path) -> None:
    with running(slow, until="promoted hyp_0001") as (first, _):
        first.kill()
        first.wait()
        before = live_lanes(open_context("tiny-1"))
        assert set(before) == LANES
        with running(slow, "--resume", until="promoted hyp_0002") as (second, lines):
            assert live_lanes(open_context("tiny-1")) == before
            second.send_signal(signal.SIGINT)
            assert second.wait(150) == 130
        assert "All lanes ended, no claim is open." in "".join(lines)
        assert live_lanes(open_context("tiny-1")) == {}


def test_labmates_down_ends_a_run_and_the_run_says_so(slow: Path) -> None:
    with running(slow, until="promoted hyp_0001") as (process, lines):
        assert labmates("down").returncode == 0
        assert process.wait(150) == 130
    assert "stopped by labmates down at " in "".join(lines)


def test_the_embedded_store_is_brought_back_when_it_dies(folder: Path, store_home: Path) -> None:
    with running(folder, until="promoted hyp_0001") as (process, lines):
        pid = server_status(store_home).pid
        assert pid
        psutil.Process(pid).kill()
        assert process.wait(120) == 0
    assert "promoted hyp_0007" in "".join(lines)
    assert server_status(store_home).pid not in {None, pid}
    assert labmates("verify").returncode == 0


def test_nothing_unfinished_cannot_be_resumed(folder: Path) -> None:
    code, out, err = run_whole(folder, "--resume")
    assert (code, out) == (2, "")
    assert err.startswith("labmates: no unfinished run of the preset tiny is on this machine\n")
    code, out, err = run_whole(folder, "--resume", "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["error"]["code"] == "usage"


def test_a_place_that_takes_no_files_is_named_and_the_next_run_works(
    folder: Path, store_home: Path
) -> None:
    (store_home / "demo").write_text("in the way")
    code, out, err = run_whole(folder)
    assert (code, out) == (5, "")
    assert err.startswith(f"labmates: {store_home}/demo/lock cannot be written: ")
    (store_home / "demo").unlink()
    (store_home / "goals").write_text("in the way")
    code, out, err = run_whole(folder)
    assert (code, out) == (5, "")
    assert err.startswith(f"labmates: the workspace {store_home}/demo/tiny-1 cannot be written: ")
    assert not (store_home / "demo" / "tiny-1").exists()
    (store_home / "goals").unlink()
    code, _, err = run_whole(folder)
    assert (code, err) == (0, "")


def test_a_missing_git_is_named_and_leaves_nothing(
    folder: Path, store_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    code, out, err = run_whole(folder)
    assert (code, out) == (5, "")
    assert err.startswith("labmates: git is not installed.")
    assert not (store_home / "demo" / "tiny-1").exists()


def test_a_lane_that_cannot_work_ends_the_run_with_its_log(slow: Path, store_home: Path) -> None:
    with running(slow, until="promoted hyp_0001") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(150) == 130
    workspace = store_home / "demo" / "tiny-1"
    workspace.rename(store_home / "elsewhere")
    code, out, err = run_whole(slow, "--resume")
    assert (code, out) == (2, "")
    assert err.startswith("labmates: no unfinished run of the preset tiny ")
    (store_home / "elsewhere").rename(workspace)
    with running(slow, "--resume", until="started attempt 6 ") as (process, lines):
        (store_home / "goals" / "tiny-1" / "goal.json").rename(store_home / "goal.json")
        for pid, _ in live_lanes_by_store().values():
            psutil.Process(pid).kill()
        process.wait(150)
        assert process.stderr
        error = process.stderr.read()
        (store_home / "goal.json").rename(store_home / "goals" / "tiny-1" / "goal.json")
    assert process.returncode == 5, (error, lines)
    assert "ended with exit code 5" in error
    assert "Traceback" not in error
    assert "goal.json" in error or "does not know the repository" in error


def test_a_store_that_is_not_ours_and_dies_ends_the_lanes_with_exit_code_4(
    slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session_server(None) as server:
        monkeypatch.setenv("LABMATES_STORE_URL", str(server.url))
        with running(slow, until="promoted hyp_0001", goal_id="") as (process, _):
            lanes = psutil.Process(process.pid).children(recursive=True)
            assert server.pid
            psutil.Process(server.pid).kill()
            assert process.wait(150) == 4
            assert process.stderr
            error = process.stderr.read()
        assert error.startswith("labmates: no answer from unix://")
        assert "Traceback" not in error
        assert "Go on: labmates demo --execute --headless --resume" in error
        gone, alive = psutil.wait_procs(lanes, timeout=10)
        assert alive == []
        assert len(gone) >= 8


def test_a_contract_that_was_changed_meanwhile_is_not_gone_on_with(
    slow: Path, store_home: Path
) -> None:
    with running(slow, until="promoted hyp_0001") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(150) == 130
    toml = store_home / "demo" / "tiny-1" / "labmates.toml"
    approved = toml.read_text()
    toml.write_text(approved.replace("min_gain = 0.05", "min_gain = 0.01"))
    code, out, err = run_whole(slow, "--resume")
    assert (code, out) == (3, "")
    assert "min_gain" in err
    assert live_lanes(open_context("tiny-1")) == {}


def live_lanes_by_store() -> dict[str, tuple[int, str]]:
    """Find the lanes of tiny-1 without the file that names its repository."""
    from contracts.goals import open_reader

    reader = open_reader("tiny-1")
    found = {}
    for agent_id in reader.agent_ids():
        agent = reader.agent(agent_id)
        if agent.get("inc_pid"):
            found[agent_id] = (int(agent["inc_pid"]), agent["inc_start"])
    return found
