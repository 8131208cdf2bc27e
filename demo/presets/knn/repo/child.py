"""One side of a round: reads problems from stdin, answers on the descriptor that it is given.

Run as `python -I -B child.py reference|candidate DESCRIPTOR`. Trusted until the candidate is
imported, never after that: the evaluator believes nothing that comes from here but the answers,
and those it verifies.
"""

import os
import pathlib
import sys
import types

import numpy as np  # before anything of the checkout can be imported

HERE = pathlib.Path(__file__).resolve().parent
HEADER = 16
LONGEST_ERROR = 2000


def load(name):
    """Load a file of the checkout from its source, never from bytecode that may lie beside it."""
    path = HERE / f"{name}.py"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    return module


def receive(size):
    """Read exactly `size` bytes into new memory; None at the end of the input."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = os.readv(0, [view[done:]])
        if count == 0:
            return None
        done += count
    return data


def send(descriptor, token, status, payload):
    """Write one reply: token, status, size, payload."""
    size = len(payload).to_bytes(7, "little")
    data = memoryview(b"".join((token, bytes([status]), size, payload)))
    while data:
        data = data[os.write(descriptor, data) :]


def main(side, descriptor):
    """Answer problems until the input ends; the first line of work is to get ready."""
    task = load("task")
    jail = load("jail")
    np.random.default_rng(0)
    size = task.POINT_BYTES + task.QUERY_BYTES
    token = receive(HEADER // 2)
    try:
        if side == "reference":
            jail.hide()
            bounds, solve = jail.seal(), task.solve
        else:
            bounds = jail.seal()
            sys.path.append(str(HERE))
            solve = load("solution").solve
        send(descriptor, token, 0, " ".join(bounds).encode())
        while (token := receive(HEADER // 2)) is not None:
            answer = task.pack_answer(solve(task.unpack(receive(size))))
            send(descriptor, token, 0, answer)
    except BaseException as error:  # a candidate may raise anything, SystemExit too
        text = f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
        send(descriptor, token, 1, text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
