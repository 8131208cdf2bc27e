"""`labmates demo` without --execute does nothing: watched from inside and from outside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import labmates

# Runs the command line under an audit hook that notes whatever would leave a trace.
WATCHED = """
import json, os, sys
seen = []
def hook(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        seen.append([event, str(args[0])])
    elif event == "open" and args[1] is None and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append([event, str(args[0])])
    elif event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn",
                           "os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink",
                           "os.rmdir", "os.truncate", "shutil.", "tempfile.", "os.system")):
        if event != "socket.gethostname":
            seen.append([event, str(args)])
sys.addaudithook(hook)
from roles.cli import run
code = run(json.loads(sys.argv[1]))
sys.stdout.flush()
print(json.dumps([code, seen]), file=sys.stderr)
"""


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_dry_run_starts_no_process_opens_no_socket_and_creates_no_file(
    store_home: Path, tmp_path: Path, options: list[str]
) -> None:
    before = everything_below(store_home.parent)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps(["demo", *options])],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stderr) == [0, []]
    assert "labmates" in done.stdout
    assert everything_below(store_home.parent) == before
    assert everything_below(tmp_path) == []


def test_the_watch_of_the_dry_run_sees_what_other_commands_do(store_home: Path) -> None:
    assert not (store_home / "store").exists()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps(["status"])],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    _, seen = json.loads(done.stderr.splitlines()[-1])
    assert {event.partition(".")[0] for event, _ in seen} >= {"open", "socket", "os"}


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--preset", "nothing"], 2, "presets"),
        (["--headless"], 2, "--execute"),
        (["--execute"], 5, "--headless"),
    ],
)
def test_what_cannot_run_says_so_and_starts_nothing(
    store_home: Path, options: list[str], code: int, says: str
) -> None:
    done = labmates("demo", *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("labmates: ")
    assert says in done.stderr
    assert not store_home.exists()
