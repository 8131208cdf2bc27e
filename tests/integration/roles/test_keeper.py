"""What a run started ends with it, however it hides, and also when labmates is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from roles.processes.process import EndedBy, ProcessOutcome, run
from roles.processes.tree import identify
from tests.support import wait_until

# no session of ours, no environment, no parent: by then the samples are a second apart
ESCAPE = """
import os, sys, time
def escape(*argv):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("pid", "w") as file:
                file.write(str(os.getpid()))
            null = os.open("/dev/null", os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.execve(argv[0], argv, {})
        os._exit(0)
    os.wait()
time.sleep(0.7)
"""


def py(code: str, cwd: Path, *, timeout_s: float = 20, grace_s: float = 0.3) -> ProcessOutcome:
    return run(
        [sys.executable, "-S", "-c", code],
        cwd=cwd,
        env={"PATH": os.environ["PATH"]},
        timeout_s=timeout_s,
        grace_s=grace_s,
    )


def escaped(cwd: Path) -> int:
    wait_until(
        lambda: (cwd / "pid").exists() and (cwd / "pid").read_text() != "",
        description="the escaped process has begun",
    )
    return int((cwd / "pid").read_text())


def gone(pid: int) -> bool:
    if identify(pid) is None:
        return True
    psutil.Process(pid).kill()  # a failing test leaves none either
    return False


def test_field_case_44_a_double_fork_without_session_and_environment_is_ended_and_named(
    tmp_path: Path,
) -> None:
    got = py(f"{ESCAPE}escape('/bin/sleep', '641'); print('score=0.9')", tmp_path)
    pid = escaped(tmp_path)
    assert gone(pid)
    assert (got.exit_code, got.ended_by, got.stdout) == (0, EndedBy.EXIT, "score=0.9\n")
    assert got.leftovers == (f"{pid} /bin/sleep 641",)


def test_field_case_43_the_time_limit_ends_a_double_fork_too(tmp_path: Path) -> None:
    got = py(f"{ESCAPE}escape('/bin/sleep', '642'); time.sleep(60)", tmp_path, timeout_s=1.2)
    assert gone(escaped(tmp_path))
    assert (got.ended_by, got.signal, got.leftovers) == (EndedBy.TIMEOUT, signal.SIGTERM, ())


def test_a_process_that_always_moves_to_a_new_child_is_ended(tmp_path: Path) -> None:
    hop = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.close(1), os.close(2)\n"
        "    end = time.monotonic() + 20\n"
        "    while time.monotonic() < end:\n"
        "        open('beat', 'w').close()\n"
        "        if os.fork(): os._exit(0)\n"
        "time.sleep(0.2)\n"
    )
    got = py(hop, tmp_path)
    assert got.exit_code == 0
    assert got.leftovers != ()
    (tmp_path / "beat").unlink()
    time.sleep(0.1)  # it beats every millisecond
    assert not (tmp_path / "beat").exists()


def test_what_ends_by_itself_right_after_the_program_is_no_leftover(tmp_path: Path) -> None:
    code = (
        "import os\nif os.fork() == 0:\n  os.close(1), os.close(2)\n  import time; time.sleep(0.05)"
    )
    got = py(code, tmp_path)
    assert (got.ok, got.leftovers) == (True, ())


def test_a_program_that_kills_its_keeper_has_no_good_end(tmp_path: Path) -> None:
    got = py(f"{ESCAPE}os.kill(os.getppid(), 9); time.sleep(60)", tmp_path)
    assert (got.ok, got.ended_by, got.signal) == (False, EndedBy.SIGNAL, signal.SIGKILL)
    assert got.duration_s < 10


def test_a_stopped_keeper_is_waked_and_ended(tmp_path: Path) -> None:
    got = py(f"{ESCAPE}os.kill(os.getppid(), 19); time.sleep(60)", tmp_path, timeout_s=1.5)
    assert got.ended_by is EndedBy.TIMEOUT
    assert psutil.Process().children() == []


def test_field_case_43_a_run_ends_when_labmates_is_killed(tmp_path: Path) -> None:
    own_pid = "open('own', 'w').write(str(os.getpid()))"
    code = f"{ESCAPE}escape('/bin/sleep', '643')\n{own_pid}\ntime.sleep(60)"
    ours = (
        "import sys\nfrom pathlib import Path\nfrom roles.processes.process import run\n"
        f"run([sys.executable, '-S', '-c', {code!r}], cwd=Path({str(tmp_path)!r}), env={{}},"
        " timeout_s=60)"
    )
    process = subprocess.Popen([sys.executable, "-c", ours])
    try:
        pid = escaped(tmp_path)
        wait_until((tmp_path / "own").exists, description="the program is at work")
        assert identify(pid) is not None
    finally:
        process.kill()
        process.wait()
    try:
        wait_until(lambda: identify(pid) is None, description="the escaped process is gone")
        own = int((tmp_path / "own").read_text())
        wait_until(lambda: identify(own) is None, description="the program is gone")
    finally:
        gone(pid)


@pytest.mark.parametrize(
    ("text", "mode", "code"), [("exit 7\n", 0o755, 7), ("exit 7\n", 0o644, 126)]
)
def test_a_script_without_a_first_line_and_a_file_that_is_no_program(
    text: str, mode: int, code: int, tmp_path: Path
) -> None:
    (tmp_path / "tool").write_text(text)
    (tmp_path / "tool").chmod(mode)
    got = run(["./tool"], cwd=tmp_path, env={}, timeout_s=5)
    assert got.exit_code == code
