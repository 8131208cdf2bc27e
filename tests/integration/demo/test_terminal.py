"""The live view on a real pseudo-terminal: redrawn in place, calm, and it stays."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.integration.demo.tiny import RUN, make_preset

CHANGES = {
    "double": {"value.txt": "2\n"},
    "wrong": {"value.txt": "?\n"},
    "best": {"value.txt": "6\n"},
}


def run_on_terminal(folder: Path, columns: int, **env: str) -> tuple[int, str, float]:
    """Run the demo on a terminal of its own; gives exit code, all it wrote, and seconds."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **env},
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    return process.wait(30), written.decode(), time.monotonic() - start


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("server_of_home")
@pytest.mark.parametrize(("columns", "colour"), [(80, True), (120, False)])
def test_the_live_view_redraws_in_place_and_stays_above_the_summary(
    tmp_path: Path, columns: int, colour: bool
) -> None:
    make_preset(tmp_path / "tiny", changes=CHANGES)
    code, written, seconds = run_on_terminal(
        tmp_path / "tiny", columns, **({} if colour else {"NO_COLOR": "1"})
    )
    assert code == 0, written
    assert "\x1b[?1049h" not in written, "no alternate screen"
    frames = written.count("labmates demo, preset tiny")
    assert 3 <= frames <= 4 * seconds + 3
    assert ("\x1b[32m" in written) is colour
    tail = written[written.rindex("labmates demo, preset tiny") :]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", tail).replace("\r", "")
    assert plain.isascii()
    assert [line for line in plain.splitlines() if len(line) > columns] == []
    assert plain.index("Ctrl-C ends the lanes") < plain.index("done: 6.0")
    assert " 1  double" in plain
    assert "All lanes ended, no claim is open." in plain
    assert ("against the champion" in plain.splitlines()[3]) is (columns == 120)
