"""Measure solution.py against the reference: one round, one number.

    python evaluate.py --split dev|holdout

A round starts two processes, the reference and the candidate, and sends both the same problems,
one by one: the first is not counted, then come five that are, in the order A B B A. Time is each
process's own CPU clock, read from outside, from the first counted problem to the last answer, so
that work between two calls counts too. Every answer is compared with the reference's. The score is
the reference's time over the candidate's.

The result is written to the file named in LABMATES_RESULT, after both processes have ended, or
printed if there is no such name. Exit codes: 0 a result (a failed one too), 2 wrong usage, 3 the
machine failed (no result), 4 the result file cannot be made.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path not in ("", HERE)]  # no file here is a library

import argparse
import fcntl
import json
import select
import signal
import subprocess
import time
import types
import zlib

WARM_UPS = 1
TIMED = 5
CALL_LIMIT_S = 3.0
START_LIMIT_S = 6.0
LONGEST_REPLY = 1 << 16
PIPE_BYTES = 1 << 20
SET_PIPE_SIZE = 1031
HEADER = 16

CHILD_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}


class RoundFailed(Exception):
    """The candidate ended the round; `label` says how in a word or two."""

    def __init__(self, label, reason):
        super().__init__(reason)
        self.label = label
        self.reason = reason


class Side:
    """One of the two processes, and what was measured of it."""

    def __init__(self, name, process, replies):
        self.name = name
        self.process = process
        self.replies = replies
        self.bounds = []
        self.spans = []

    def clock(self):
        """CPU seconds that the process has used, all its threads together."""
        try:
            return time.clock_gettime((~self.process.pid << 3) | 2)
        except OSError:
            raise RoundFailed("crash", "the process has gone") from None

    def total(self):
        """CPU seconds from the first counted problem to the last answer."""
        return self.spans[-1][1] - self.spans[0][0]


def own(name):
    """Load a file of this folder from its source, never from bytecode that may lie beside it."""
    path = os.path.join(HERE, f"{name}.py")
    module = types.ModuleType(name)
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module


def start(name):
    """Start one side; it reports with `ready`."""
    replies, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-B", os.path.join(HERE, "child.py"), name, str(theirs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs,),
        env=CHILD_ENVIRONMENT,
        cwd=HERE,
        bufsize=0,
    )
    os.close(theirs)
    os.set_blocking(process.stdin.fileno(), False)
    try:  # a problem then fits in the pipe at once, which saves the child many small reads
        fcntl.fcntl(process.stdin, SET_PIPE_SIZE, PIPE_BYTES)
    except OSError:
        pass
    return Side(name, process, replies)


def wait_for(descriptor, event, deadline):
    """Wait until the descriptor is ready; silence until the deadline ends the round."""
    poll = select.poll()
    poll.register(descriptor, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise RoundFailed("timeout", "no answer within the time limit of one call")


def write(side, data, deadline):
    """Send bytes to a side."""
    view, descriptor = memoryview(data), side.process.stdin.fileno()
    while view:
        wait_for(descriptor, select.POLLOUT, deadline)
        try:
            view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            raise gone(side) from None


def read(side, size, deadline):
    """Read exactly `size` bytes of a side."""
    data = b""
    while len(data) < size:
        wait_for(side.replies, select.POLLIN, deadline)
        chunk = os.read(side.replies, size - len(data))
        if not chunk:
            raise gone(side)
        data += chunk
    return data


def gone(side):
    """Say why a side has ended."""
    code = side.process.wait(timeout=CALL_LIMIT_S)
    if code == -signal.SIGSYS:
        return RoundFailed("forbidden", "it tried to start a process or to look into another")
    return RoundFailed("crash", f"the process ended with {code}")


def ask(side, data, limit_s):
    """Send one problem and read the answer; gives it with the CPU clock before and after."""
    deadline = time.monotonic() + limit_s
    poll = select.poll()
    poll.register(side.replies, select.POLLIN)
    if any(event & select.POLLIN for _, event in poll.poll(0)):
        raise RoundFailed("forbidden", "it answered before it was asked")
    token = os.urandom(HEADER // 2)
    before = side.clock()
    write(side, token + data, deadline)
    header = read(side, HEADER, deadline)
    size = int.from_bytes(header[9:], "little")
    if header[:8] != token or size > LONGEST_REPLY:
        raise RoundFailed("forbidden", "its reply does not belong to what it was asked")
    answer = read(side, size, deadline)
    after = side.clock()
    if header[8]:
        raise RoundFailed("crash", answer.decode("utf-8", "replace"))
    return answer, (before, after)


def family():
    """Give pid, parent and reaped children's page faults of every process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(fields[1]), int(fields[8]))
    return found


def look_for_helpers(side, known):
    """End the round if a side has threads, or has or had children."""
    pid, processes = side.process.pid, family()
    strays = [child for child, (parent, _) in processes.items() if parent in (pid, os.getpid())]
    try:
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        raise gone(side) from None
    if threads != 1:
        raise RoundFailed("forbidden", f"it runs {threads} threads")
    if set(strays) - known or processes.get(pid, (0, 0))[1]:
        raise RoundFailed("forbidden", "it started a process")


def end(sides):
    """End both sides, and what they may have left behind."""
    for side in sides:
        side.process.kill()
        side.process.wait()
        side.process.stdin.close()
        os.close(side.replies)
    for child, (parent, _) in family().items():
        if parent == os.getpid():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def run_round(seed):
    """Run one round; gives pass, score, label and detail. Raises OSError if the machine fails."""
    own("jail").hide()
    reference, candidate = sides = [start("reference"), start("candidate")]
    known = {side.process.pid for side in sides}
    result = {"pass": False, "score": None, "label": "", "detail": {"seed": seed}}
    exact = []
    try:
        task = own("task")  # and with it numpy, while the children import theirs
        for side in sides:
            trust(side, lambda side=side: get_ready(side))
        for call in range(WARM_UPS + TIMED):
            data = task.pack(task.draw_problem([*seed, call]))
            turn = sides if (call + seed[0]) % 2 else sides[::-1]
            answers = {}
            for side in turn:
                answers[side.name], span = trust(side, lambda s=side: ask(s, data, CALL_LIMIT_S))
                if call >= WARM_UPS:
                    side.spans.append(span)
            look_for_helpers(candidate, known)
            exact.append(answers["reference"] == answers["candidate"])
        if all(exact):
            result["pass"] = True
            result["score"] = reference.total() / candidate.total()
        result["label"] = f"{sum(exact)}/{len(exact)} exact"
    except RoundFailed as failure:
        result["label"] = failure.label
        result["detail"]["reason"] = failure.reason
    finally:
        end(sides)
    result["detail"] |= {
        "bounds": candidate.bounds,
        "cpu_ms": {s.name: [round((b - a) * 1e3, 3) for a, b in s.spans] for s in sides},
    }
    return result


def get_ready(side):
    """Wait until a side has imported what it needs, and note the bounds that it is under."""
    side.bounds = ask(side, b"", START_LIMIT_S)[0].decode("utf-8", "replace").split()


def trust(side, action):
    """Do something with a side; what fails on the reference's is the machine's fault."""
    try:
        return action()
    except RoundFailed as failure:
        if side.name == "reference":
            message = f"the reference failed ({failure.label}: {failure.reason})"
            raise OSError(message) from None
        raise


def choose_seed(split, drawn):
    """Give the integers that the problems come from; the split is always one of them."""
    if drawn is not None:
        seed = [int(drawn)]
    elif split == "dev":
        with open(os.path.join(HERE, "data", "dev_seeds.json"), encoding="utf-8") as file:
            seed = json.load(file)["dev"]
    else:
        seed = [int.from_bytes(os.urandom(6))]
    if any(number < 0 for number in seed):
        raise ValueError("negative")
    return [*seed, zlib.crc32(split.encode())]


def deliver(result, path):
    """Write the result to a new file, or print it."""
    text = json.dumps(result, allow_nan=False)
    if path is None:
        print(text)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")


def main():
    """Parse, run, deliver; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure solution.py against the reference.")
    parser.add_argument("--split", choices=("dev", "holdout"), default="dev")
    split = parser.parse_args().split
    path = os.environ.pop("LABMATES_RESULT", None)
    try:
        seed = choose_seed(split, os.environ.pop("LABMATES_SEED", None))
    except ValueError:
        print("evaluate: LABMATES_SEED is no non-negative integer", file=sys.stderr)
        return 2
    try:
        result = run_round(seed)
    except (OSError, ImportError) as error:
        print(f"evaluate: no result, {error}", file=sys.stderr)
        return 3
    try:
        deliver({**result, "detail": {"split": split, **result["detail"]}}, path)
    except OSError as error:
        print(f"evaluate: the result file cannot be made, {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
