"""Real children: what they print, how they end, and that nothing of them is left."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from contracts.errors import MachineError, UsageError
from roles.processes.process import EndedBy, Limits, ProcessOutcome, base_env, call, run
from roles.processes.tree import MARKER, ProcessIdentity, end_process, identify, is_alive
from tests.support import wait_until

PATH = {"PATH": os.environ["PATH"]}


def sh(script: str, cwd: Path, *, timeout_s: float = 20, **options: object) -> ProcessOutcome:
    return run(
        ["sh", "-c", script],
        cwd=cwd,
        env=PATH,
        timeout_s=timeout_s,
        **options,  # type: ignore[arg-type] # one helper for all options
    )


def py(code: str, cwd: Path, *, timeout_s: float = 20, **options: object) -> ProcessOutcome:
    return run(
        [sys.executable, "-S", "-c", code],
        cwd=cwd,
        env=PATH,
        timeout_s=timeout_s,
        **options,  # type: ignore[arg-type] # one helper for all options
    )


def pids_with(text: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and text in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_plain_run_gives_code_texts_times_and_counts(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    got = sh("echo out; echo err >&2; exit 3", tmp_path)
    assert (got.exit_code, got.signal, got.ended_by) == (3, None, EndedBy.EXIT)
    assert (got.stdout, got.stderr, got.output_bytes) == ("out\n", "err\n", 8)
    assert before <= got.started_at <= datetime.now(UTC)
    assert 0 < got.duration_s < 10
    assert not got.ok
    assert got.leftovers == ()


def test_arguments_reach_the_program_untouched(tmp_path: Path) -> None:
    odd = ["$(touch p)", "a b", "", "'", "`x`", "é", "--upload-pack=x", "-n"]
    got = run(["printf", "[%s]", *odd], cwd=tmp_path, env=PATH, timeout_s=5)
    assert got.stdout == "".join(f"[{part}]" for part in odd)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_code_127_and_a_missing_folder_is_the_machines(tmp_path: Path) -> None:
    got = run(["no-such-program"], cwd=tmp_path, env=PATH, timeout_s=5)
    assert got.exit_code == 127
    assert "no-such-program" in got.stderr
    with pytest.raises(MachineError, match="no process can be started"):
        run(["true"], cwd=tmp_path / "gone", env=PATH, timeout_s=5)


@pytest.mark.parametrize("argv", [[], ["-x"], ["echo", "a\0b"]])
def test_what_is_no_command_is_refused(argv: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(argv, cwd=tmp_path, env=PATH, timeout_s=5)


def test_a_signal_of_somebody_else_is_told_as_signal(tmp_path: Path) -> None:
    got = sh("kill -SEGV $$", tmp_path)
    assert (got.ended_by, got.signal, got.exit_code) == (EndedBy.SIGNAL, signal.SIGSEGV, None)


def test_field_case_43_timeout_ends_grandchildren_and_escapees(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    script = (
        "(while :; do date >> src/out.txt; sleep 0.05; done) & "
        "setsid sh -c 'while :; do date >> src/far.txt; sleep 0.05; done' & "
        "sh -c 'setsid sh -c \"while :; do date >> src/orphan.txt; sleep 0.05; done\" & exit 0'; "
        "sleep 600"
    )
    start = time.monotonic()
    got = sh(script, tmp_path, timeout_s=1.5, grace_s=1)
    assert got.ended_by is EndedBy.TIMEOUT
    assert time.monotonic() - start < 1.5 + 5
    files = sorted((tmp_path / "src").iterdir())
    assert [f.name for f in files] == ["far.txt", "orphan.txt", "out.txt"]
    sizes = [f.stat().st_size for f in files]
    time.sleep(0.3)  # the writers write every 0.05 s
    assert [f.stat().st_size for f in files] == sizes
    assert pids_with(str(tmp_path)) == []


def test_field_case_43_a_child_that_ignores_term_and_one_with_another_environment_end(
    tmp_path: Path,
) -> None:
    script = (
        "trap '' TERM; echo $$ > a; env -i setsid sh -c 'trap \"\" TERM; echo $$ > b; "
        "while :; do sleep 0.1; done' & while :; do sleep 0.1; done"
    )
    got = sh(script, tmp_path, timeout_s=1, grace_s=0.3)
    assert got.signal == signal.SIGKILL
    for name in "ab":
        pid = int((tmp_path / name).read_text())
        assert identify(pid) is None


@pytest.mark.parametrize(
    "script",
    ["sleep 60 & echo score=0.9", "setsid sleep 60 & echo score=0.9"],
)
def test_field_case_44_the_direct_child_decides_and_the_leftover_is_named(
    script: str, tmp_path: Path
) -> None:
    got = sh(script, tmp_path, timeout_s=10)
    assert (got.exit_code, got.ended_by, got.stdout) == (0, EndedBy.EXIT, "score=0.9\n")
    assert got.ok
    assert got.duration_s < 5
    assert len(got.leftovers) == 1
    pid, command = got.leftovers[0].split(" ", 1)
    assert command == "sleep 60"
    assert identify(int(pid)) is None


def test_field_case_44_a_tee_on_the_pipe_loses_nothing(tmp_path: Path) -> None:
    got = run(
        ["bash", "-c", "exec > >(tee log) 2>&1; echo score=0.9"],
        cwd=tmp_path,
        env=PATH,
        timeout_s=10,
    )
    assert got.ok
    assert got.stdout == "score=0.9\n"


def test_a_silent_daemon_without_our_pipes_is_a_leftover_too(tmp_path: Path) -> None:
    got = sh("setsid sleep 61 >/dev/null 2>&1 & exit 0", tmp_path)
    assert [name.split(" ", 1)[1] for name in got.leftovers] == ["sleep 61"]


def test_field_case_50_only_the_very_process_is_ended(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "999"], start_new_session=True)
    try:
        real = identify(other.pid)
        assert real is not None
        assert abs(real.started - time.time()) < 30
        stale = ProcessIdentity(pid=other.pid, started=real.started - 60)
        assert not is_alive(stale)
        assert end_process(stale)
        assert other.poll() is None
        assert end_process(real, grace_s=2)
        assert other.wait(5) == -signal.SIGTERM
        assert identify(other.pid) is None
    finally:
        other.kill()
        other.wait()


def test_a_process_that_leads_no_session_is_ended_with_its_children(tmp_path: Path) -> None:
    other = subprocess.Popen(["sh", "-c", "sleep 998 & echo $! > pid; wait"], cwd=tmp_path)
    try:
        wait_until(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(),
            description="the grandchild runs",
        )
        real = identify(other.pid)
        assert real is not None
        assert end_process(real, grace_s=2)
        other.wait(5)
        assert identify(int((tmp_path / "pid").read_text())) is None
    finally:
        other.kill()
        other.wait()


def test_field_case_52_a_child_that_reads_stdin_gets_its_end_at_once(tmp_path: Path) -> None:
    got = sh("cat; readlink /proc/self/fd/0; echo done", tmp_path, timeout_s=10)
    assert got.stdout == "/dev/null\ndone\n"
    assert got.duration_s < 5


def test_field_case_52_silence_shows_before_it_ends_the_run(tmp_path: Path) -> None:
    told: list[float] = []
    got = sh("echo hi; sleep 60", tmp_path, silence_s=2.5, on_quiet=told.append, grace_s=0.5)
    assert got.ended_by is EndedBy.SILENCE
    assert got.stdout == "hi\n"
    assert 2 <= got.duration_s < 10
    assert told
    assert 0.9 < told[0] < 2.4


def test_output_resets_the_silence_clock(tmp_path: Path) -> None:
    got = sh("for i in 1 2 3 4; do sleep 0.4; echo $i >&2; done", tmp_path, silence_s=1.2)
    assert got.ok


def test_stop_ends_the_run_as_stopped(tmp_path: Path) -> None:
    asked = threading.Event()
    timer = threading.Timer(0.5, asked.set)
    timer.start()
    got = sh("sleep 60", tmp_path, stop=asked.is_set)
    timer.join()
    assert got.ended_by is EndedBy.STOPPED
    assert got.signal == signal.SIGTERM
    assert got.duration_s < 5


def test_an_error_in_the_caller_leaves_no_child(tmp_path: Path) -> None:
    def stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sh("echo $$ > pid; sleep 62.5", tmp_path, stop=stop)
    assert pids_with("sleep 62.5") == []


def test_field_case_79_odd_bytes_crash_nothing_and_are_kept_raw(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "run.log"
    script = r"printf 'a\rscore=0.2\n\033[32mx\033[0m\n\377score=0.9\n\0end'"
    got = sh(script, tmp_path, log_path=log)
    assert got.stdout == "a\rscore=0.2\n\x1b[32mx\x1b[0m\n\ufffdscore=0.9\n\0end"
    assert log.read_bytes() == b"a\rscore=0.2\n\x1b[32mx\x1b[0m\n\xffscore=0.9\n\0end"


def test_field_case_79_research_case_23_huge_output_keeps_head_and_tail(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    script = "echo first; head -c 200000000 /dev/zero; echo; echo score=0.9"
    before = psutil.Process().memory_info().rss
    got = sh(script, tmp_path, timeout_s=60, log_path=log)
    assert got.output_bytes == 6 + 200_000_000 + 1 + 10
    assert got.stdout.startswith("first\n")
    assert got.stdout.endswith("\nscore=0.9\n")
    assert re.search(r"\n\[\d+ bytes left out\]\n", got.stdout)
    assert len(got.stdout) < 140_000
    assert 64 * 2**20 <= log.stat().st_size < 65 * 2**20
    assert log.read_bytes().endswith(b"[log cut here: it has reached its limit]\n")
    assert psutil.Process().memory_info().rss - before < 30 * 2**20


def test_a_memory_limit_ends_the_run_as_out_of_memory(tmp_path: Path) -> None:
    got = py("x = bytearray(400 << 20)", tmp_path, limits=Limits(memory_bytes=150 << 20))
    assert got.ended_by is EndedBy.OUT_OF_MEMORY
    assert "MemoryError" in got.stderr


def test_a_memory_limit_counts_the_whole_tree(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for _ in range(3): os.fork()\n"
        "x = bytearray(60 << 20)\n"
        "for i in range(0, len(x), 4096): x[i] = 1\n"
        "time.sleep(60)"
    )
    got = py(code, tmp_path, limits=Limits(memory_bytes=250 << 20), grace_s=0.2)
    assert got.ended_by is EndedBy.OUT_OF_MEMORY
    assert got.duration_s < 15


def test_file_size_cpu_and_process_limits_hold(tmp_path: Path) -> None:
    got = py(
        "with open('f', 'wb') as f: f.write(b'x' * 5000)", tmp_path, limits=Limits(file_bytes=1000)
    )
    assert not got.ok
    assert (tmp_path / "f").stat().st_size <= 1000
    spin = py("while True: pass", tmp_path, limits=Limits(cpu_s=1))
    assert spin.ended_by is EndedBy.TIMEOUT
    many = sh(
        "for i in 1 2 3 4 5 6; do sleep 30 & done; wait",
        tmp_path,
        limits=Limits(processes=4),
        grace_s=0.2,
    )
    assert many.ended_by is EndedBy.SIGNAL
    assert many.duration_s < 10


def test_limits_hold_from_the_first_instruction(tmp_path: Path) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
    for _ in range(5):
        assert py(code, tmp_path, limits=Limits(file_bytes=4321)).stdout == "4321\n"


def test_field_case_148_a_child_sees_only_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "REDIS_URL",
        "AWS_SECRET_ACCESS_KEY",
        "OH_SECRET_KEY",
        "NEW_VENDOR_TOKEN_7",
        "LABMATES_STORE_URL",
        "PYTHONPATH",
        "GIT_DIR",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD_X",
    ):
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("AGENT_KEY", "wanted")
    home, tmp = tmp_path / "home", tmp_path / "tmp"
    env = base_env({"SEED": "7"}, home=home, tmp=tmp, keep=["AGENT_KEY"])
    got = run(["env"], cwd=tmp_path, env=env, timeout_s=5)
    assert "secret-value" not in got.stdout
    seen = dict(line.split("=", 1) for line in got.stdout.splitlines())
    assert seen.pop(MARKER)
    assert seen["HOME"] == str(home)
    assert seen["TMPDIR"] == str(tmp)
    assert (seen["SEED"], seen["TERM"], seen["AGENT_KEY"]) == ("7", "dumb", "wanted")
    allowed = {"HOME", "TMPDIR", "SEED", "TERM", "AGENT_KEY", "PATH", "LANG", "LANGUAGE", "TZ"}
    by_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {n for n in seen if not n.startswith("LC_")} <= allowed | by_the_shell


def test_our_own_interpreter_and_relative_entries_are_not_on_the_childs_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sys.prefix != sys.base_prefix, "run the tests from a venv"
    own = str(Path(sys.prefix) / "bin")
    monkeypatch.setenv("PATH", f"{own}:.::bin:/usr/bin:/bin")
    assert base_env(home=tmp_path, tmp=tmp_path)["PATH"] == "/usr/bin:/bin"
    monkeypatch.setenv("PATH", own)
    assert base_env(home=tmp_path, tmp=tmp_path)["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_many_runs_leave_no_descriptor_and_no_process(tmp_path: Path) -> None:
    sh("true", tmp_path)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        sh("echo x; sleep 0 &", tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert psutil.Process().children() == []


def test_a_helper_call_gives_bytes_and_ends_at_its_limit(tmp_path: Path) -> None:
    got = call(["cat"], cwd=tmp_path, env=PATH, stdin=b"\xff\0")
    assert (got.stdout, got.returncode) == (b"\xff\0", 0)
    with pytest.raises(MachineError, match="sleep has not ended in"):
        call(["sleep", "60"], cwd=tmp_path, env=PATH, timeout_s=0.2)
    with pytest.raises(MachineError, match="cannot be started"):
        call(["no-such"], cwd=tmp_path, env=PATH)
    wait_until(lambda: not psutil.Process().children(), description="helper is gone")
