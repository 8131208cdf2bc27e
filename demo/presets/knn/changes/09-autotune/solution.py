"""Exact k-nearest neighbours: the editable file.

`solve(problem)` answers with the indices of the k nearest points of each query, nearest first, as
an integer array of shape (queries, k).
"""

import time

import numpy as np

# Tries without a gain before a size counts as the best.
PATIENCE = 1_000_000


def sum_of_squares(vectors):
    """Add the squares along the last axis."""
    return (vectors * vectors).sum(axis=-1)


def score(points, queries):
    """Give a number for each query and point that orders the points of one query by distance."""
    return sum_of_squares(queries[:, None, :] - points[None, :, :])


def shortlist(scores, k):
    """Choose columns that hold the k smallest of each row."""
    return np.argsort(scores, axis=1)[:, :k]


def rank(columns, scores, points, queries, k):
    """Order the chosen columns by distance, nearest first."""
    return columns[:, :k]


def tuned(function, points, queries):
    """Call a function on parts of the queries, of the size that takes the least time."""
    best, size, since = np.inf, len(queries), 0
    while since < PATIENCE:
        trial = int(np.random.default_rng().integers(1, len(queries) + 1))
        start = time.perf_counter()
        function(points, queries[:trial])
        spent = (time.perf_counter() - start) / trial
        since += 1
        if spent < best:
            best, size, since = spent, trial, 0
    parts = [function(points, queries[at : at + size]) for at in range(0, len(queries), size)]
    return np.concatenate(parts)


def solve(problem):
    """Find the k nearest points of each query."""
    points, queries, k = problem["points"], problem["queries"], problem["k"]

    scores = tuned(score, points, queries)
    columns = shortlist(scores, k)

    return rank(columns, scores, points, queries, k)
