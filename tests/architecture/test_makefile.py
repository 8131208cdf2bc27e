"""The Makefile on machines that lack something, and on one that is ready.

Programs stand in a folder that is the whole PATH; git, Python and apt are replaced where a test
is about their absence or about not calling them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

TOOLS = ("make", "sh", "cksum", "grep", "sed", "expand", "rm", "find", "id", "env", "dirname")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A clone with a PATH of its own: tools, but neither git nor Python."""
    clone = tmp_path / "clone"
    tools = tmp_path / "tools"
    tools.mkdir()
    clone.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copyfile(ROOT / name, clone / name)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    return clone


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make(clone: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    tools = clone.parent / "tools"
    return subprocess.run(
        [str(tools / "make"), *words],
        cwd=clone,
        env={"PATH": str(tools), "HOME": str(clone.parent), **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def ready(clone: Path) -> Path:
    """Give the clone a .venv as `make run` leaves it; its programs write down how they are run."""
    program(clone.parent / "tools" / "git", "exit 0")
    calls = clone.parent / "calls"
    program(clone / ".venv/bin/python", f'echo "python $*" >> {calls}')
    program(clone / ".venv/bin/labmates", f'echo "labmates $*" >> {calls}\nenv')
    with (clone / "pyproject.toml").open("rb") as listing:
        digest = subprocess.run(["cksum"], stdin=listing, capture_output=True, check=True).stdout
    stamp = f"{os.path.realpath(clone)} {digest.decode().strip()} demo\n"
    (clone / ".venv/labmates-stamp").write_text(stamp)
    return calls


def test_make_alone_lists_the_targets(machine: Path) -> None:
    done = make(machine)
    assert done.returncode == 0
    for target in ("run", "test", "lint", "bench", "stress", "docs", "clean"):
        assert f"make {target} " in done.stdout


def test_without_git_one_line_says_so(machine: Path) -> None:
    done = make(machine, "run")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith("labmates: needs git")
    assert "Error 5" in done.stderr


@pytest.mark.parametrize("old", [False, True], ids=["no_python", "an_old_python"])
def test_without_a_python_that_is_new_enough_one_line_says_so(machine: Path, *, old: bool) -> None:
    program(machine.parent / "tools" / "git", "exit 0")
    if old:
        pretend = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
        body = f"exec {sys.executable} -c '{pretend}' \"$2\""
        program(machine.parent / "tools" / "python3", body)
    done = make(machine, "run")
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    assert lines[0].startswith("labmates: needs Python 3.11 or newer")
    assert lines[1].endswith("Error 5")
    assert len(lines) == 2
    assert not (machine / ".venv").exists()


def test_a_ready_clone_runs_without_pip(machine: Path) -> None:
    calls = ready(machine)
    done = make(machine, "run")
    assert done.returncode == 0, done.stderr
    assert calls.read_text().splitlines() == [
        "python -c ",
        "labmates demo --execute --headless",
    ]


@pytest.mark.parametrize("change", ["a_new_dependency", "a_moved_clone", "a_broken_python"])
def test_a_clone_that_is_no_longer_ready_installs_again(machine: Path, change: str) -> None:
    ready(machine)
    match change:
        case "a_new_dependency":
            with (machine / "pyproject.toml").open("a") as listing:
                listing.write("# changed\n")
        case "a_moved_clone":
            machine = machine.rename(machine.parent / "moved")
        case _:
            program(machine / ".venv/bin/python", "exit 1")
    done = make(machine, "run")
    # No Python is on this PATH: that it is asked for shows that an install was wanted.
    assert "needs Python" in done.stderr


def test_the_callers_git_python_and_make_settings_do_not_reach_the_run(machine: Path) -> None:
    ready(machine)
    foreign = {
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere/index",
        "PYTHONPATH": "/nowhere",
        "PIP_TARGET": "/nowhere",
        "VIRTUAL_ENV": "/nowhere",
        "MAKEFLAGS": "k",
        "SHELL": "/bin/false",
    }
    done = make(machine, "run", **foreign)
    assert done.returncode == 0, done.stderr
    seen = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "PATH" in seen
    assert seen & (set(foreign) - {"SHELL"}) == set()


def test_another_user_is_told_every_missing_package_and_its_command(machine: Path) -> None:
    tools = machine.parent / "tools"
    (tools / "id").unlink()
    program(tools / "id", "echo 1000")
    program(tools / "apt-get", f"touch {machine}/called")
    done = make(machine, "test")
    assert done.returncode != 0
    for package in ("git", "tmux", "redis-server", "chromium", "lua-check", "faketime"):
        assert f"missing {package}; install it: apt-get install {package}\n" in done.stderr
    assert "Error 5" in done.stderr
    assert not (machine / "called").exists()
    assert not (machine / ".venv").exists()


def test_the_ci_entry_runs_what_a_person_runs(machine: Path) -> None:
    entry = machine / ".ci" / "run"
    entry.parent.mkdir()
    shutil.copyfile(ROOT / ".ci" / "run", entry)
    (machine / "Makefile").write_text("test:\n\t@echo as usual; :\n")
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, ".ci/run"],
        cwd=machine,
        env={"PATH": str(machine.parent / "tools"), "MAKEFLAGS": "n", "CI": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as usual\n")
    assert (ROOT / ".ci" / "run").read_text().startswith("#!/usr/bin/env bash\n")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
