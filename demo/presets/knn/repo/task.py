"""The task: problems drawn from a seed, and the reference that every change is measured against."""

import numpy as np

POINTS = 2000
QUERIES = 200
DIMENSIONS = 16
NEIGHBOURS = 10

SHAPE = (QUERIES, NEIGHBOURS)
POINT_BYTES = POINTS * DIMENSIONS * 8
QUERY_BYTES = QUERIES * DIMENSIONS * 8


def draw_problem(seed):
    """Draw a problem: standard normal float64 points and queries. `seed` is a list of integers."""
    random = np.random.default_rng(seed)
    return {
        "points": random.standard_normal((POINTS, DIMENSIONS)),
        "queries": random.standard_normal((QUERIES, DIMENSIONS)),
        "k": NEIGHBOURS,
    }


def pack(problem):
    """Give the bytes of a problem, as they are sent to a child."""
    return problem["points"].tobytes() + problem["queries"].tobytes()


def unpack(data):
    """Make the problem of its bytes, in new arrays that may be written to."""
    values = np.frombuffer(data, dtype=np.float64)
    points = POINTS * DIMENSIONS
    return {
        "points": values[:points].reshape(POINTS, DIMENSIONS),
        "queries": values[points:].reshape(QUERIES, DIMENSIONS),
        "k": NEIGHBOURS,
    }


def pack_answer(answer):
    """Turn an answer into plain bytes; raises ValueError or TypeError if it is none."""
    array = np.array(answer, order="C", subok=False)
    if array.shape != SHAPE or array.dtype.kind not in "iu":
        message = f"an integer array of shape {SHAPE} was expected: {array.dtype} {array.shape}"
        raise ValueError(message)
    return array.astype(np.int64, copy=False).tobytes()


def solve(problem):
    """Solve by brute force: all differences, a full sort."""
    points, queries = problem["points"], problem["queries"]
    differences = queries[:, None, :] - points[None, :, :]
    distances = (differences * differences).sum(axis=-1)
    return np.argsort(distances, axis=1)[:, : problem["k"]]
