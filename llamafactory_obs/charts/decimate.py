"""Fewer points without losing one that matters: of each bucket the lowest and the highest stay."""

from itertools import pairwise

import numpy as np

#: buckets across the picture; each keeps up to two finite points and one that is not finite
BUCKETS = 400


def decimate(steps: np.ndarray, values: np.ndarray, buckets: int = BUCKETS) -> np.ndarray:
    """Positions of the points to draw, in order: per bucket of steps the first lowest and the first highest finite
    value and the first of each kind that is not finite; the first and the last point.

    Args:
        steps: ascending.
        values: of the same length; NaN and infinities allowed.

    Returns:
        Positions in `steps`; all of them where there are no more than two per bucket.
    """
    count = len(steps)
    if count <= 2 * buckets:
        return np.arange(count)
    low, high = int(steps[0]), int(steps[-1])
    bucket = (steps - low) * buckets // (high - low + 1)
    edges = [0, *(np.flatnonzero(np.diff(bucket)) + 1).tolist(), count]
    finite = np.isfinite(values)
    keep = {0, count - 1}
    for begin, end in pairwise(edges):
        there = finite[begin:end]
        part = values[begin:end]
        if there.any():
            keep.add(begin + int(np.argmin(np.where(there, part, np.inf))))
            keep.add(begin + int(np.argmax(np.where(there, part, -np.inf))))
        if not there.all():
            for kind in (np.isnan(part), part == np.inf, part == -np.inf):
                if kind.any():
                    keep.add(begin + int(np.argmax(kind)))
    return np.array(sorted(keep))


def ema(values: np.ndarray, span: int) -> np.ndarray:
    """Exponential moving average with decay 1 - 2 / (span + 1), corrected for its empty start as Adam's moments are.

    What is not finite is skipped: there the mean is NaN, and goes on behind it.
    """
    keep = 1.0 - 2.0 / (span + 1.0)
    mean, weight = 0.0, 0.0
    out = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    with np.errstate(over="ignore"):
        for i, (value, there) in enumerate(zip(values.tolist(), finite.tolist(), strict=True)):
            if there:
                mean = keep * mean + (1.0 - keep) * value
                weight = keep * weight + (1.0 - keep)
                out[i] = mean / weight
    return out


def bucket_means(steps: np.ndarray, columns: list[np.ndarray], buckets: int = BUCKETS) -> tuple:
    """Steps and columns with the mean of each bucket of steps, for shares that are stacked; unchanged where few.

    Returns:
        (steps, columns, the number of rows in each bucket). A bucket's step is its middle row's.
    """
    if len(steps) <= buckets:
        return steps, columns, np.ones(len(steps), dtype=int)
    low, high = int(steps[0]), int(steps[-1])
    bucket = (steps - low) * buckets // (high - low + 1)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(bucket)) + 1])
    counts = np.diff(np.concatenate([starts, [len(steps)]]))
    return steps[starts + counts // 2], [np.add.reduceat(column, starts) / counts for column in columns], counts
