"""By what two runs are held against each other: steps, or samples or tokens seen where a step is not the same data."""

import numpy as np

from ..logs.curves import Curves
from ..logs.names import LOSS
from .model import Axis, Run

_TOKENS = "data/tokens"
#: settings by which a sequence holds another number of tokens
_LENGTHS = ("cutoff_len", "packing", "neat_packing", "template", "dataset")


class Places:
    """The places of B's steps on A's axis of steps."""

    def __init__(self, axis: Axis, steps: np.ndarray, places: np.ndarray):
        self.axis, self._steps, self._places = axis, steps, places

    def of_b(self, steps: np.ndarray) -> np.ndarray:
        """B's steps as steps of A."""
        if self.axis.name == "tokens":
            return np.interp(steps, self._steps, self._places)
        return np.asarray(steps, dtype=float) * self.axis.factor


def column(curves: Curves, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows that have a number: of the newest run, where a log holds several."""
    held = curves.columns.get(name)
    if held is None or not len(held):
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    begin = max((one.row for one in curves.breaks if one.kind == "restart"), default=0)
    rows = np.flatnonzero(np.frombuffer(held.present, dtype=np.uint8)[begin:]) + begin
    steps = np.frombuffer(curves.steps, dtype=np.int64)[rows]
    values = np.frombuffer(held.values, dtype=np.float64)[rows]
    steps, first = np.unique(steps, return_index=True)
    return steps, values[first]


def places(a: Run, b: Run) -> Places:
    """Choose the axis and say why."""
    steps_a, steps_b = column(a.curves, LOSS)[0], column(b.curves, LOSS)[0]
    batch_a, batch_b = a.summary.used.total_batch, b.summary.used.total_batch
    lengths = any(a.curves.settings.get(name) != b.curves.settings.get(name) for name in _LENGTHS)
    name, why, factor = "steps", "same_batch", 1.0
    inner: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))
    if batch_a and batch_b and batch_a != batch_b:
        name, why, factor = "samples", "other_batch", batch_b / batch_a
    elif not (batch_a and batch_b):
        why = "batch_unknown"
    if (name == "samples" or why == "same_batch") and lengths:
        found = _by_tokens(a.curves, b.curves)
        if found is not None and not np.array_equal(*found[0]):
            name, why = "tokens", "other_lengths"
            inner, factor = found
        elif found is not None:
            name, why, factor = "steps", "same_tokens", 1.0
        elif name == "steps":
            why = "tokens_unknown"
    axis = Axis(name, why, factor, None, None)
    mapping = Places(axis, *inner)
    if len(steps_a) and len(steps_b):
        on_a = mapping.of_b(steps_b)
        low, high = max(float(steps_a[0]), float(on_a[0])), min(float(steps_a[-1]), float(on_a[-1]))
        if low <= high:
            mapping.axis = Axis(name, why, factor, low, high)
    return mapping


def _by_tokens(a: Curves, b: Curves) -> tuple[tuple[np.ndarray, np.ndarray], float] | None:
    """B's steps and their places by tokens seen; None where they are not counted from the first step on."""
    (steps_a, tokens_a), (steps_b, tokens_b) = column(a, _TOKENS), column(b, _TOKENS)
    for steps, tokens in ((steps_a, tokens_a), (steps_b, tokens_b)):
        if len(steps) < 2 or steps[0] != 1 or len(steps) != steps[-1] or not np.isfinite(tokens).all():
            return None
    seen_a, seen_b = np.cumsum(tokens_a), np.cumsum(tokens_b)
    if seen_a[-1] <= 0 or seen_b[-1] <= 0:
        return None
    per_a, per_b = seen_a[-1] / len(steps_a), seen_b[-1] / len(steps_b)
    on_a = np.interp(seen_b, np.concatenate([[0.0], seen_a]), np.concatenate([[0], steps_a]))
    beyond = seen_b > seen_a[-1]
    on_a[beyond] = steps_a[-1] + (seen_b[beyond] - seen_a[-1]) / per_a
    return (steps_b.astype(float), on_a), float(per_b / per_a)


def paired(xa: np.ndarray, va: np.ndarray, xb: np.ndarray, vb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two curves over the same places: where one has more rows, their mean over each stretch of the other.

    Returns:
        (places, a, b) with finite values above 0 only.
    """
    good_a, good_b = np.isfinite(va) & (va > 0), np.isfinite(vb) & (vb > 0)
    xa, va, xb, vb = xa[good_a].astype(float), va[good_a], xb[good_b].astype(float), vb[good_b]
    empty = np.zeros(0)
    if not len(xa) or not len(xb):
        return empty, empty, empty
    if len(xa) == len(xb) and np.array_equal(xa, xb):
        return xa, va, vb
    low, high = max(xa[0], xb[0]), min(xa[-1], xb[-1])
    edges = [x[(x >= low - 1e-9) & (x <= high + 1e-9)] for x in (xa, xb)]
    shared = np.intersect1d(*edges)
    if len(shared) and len(shared) >= 0.9 * max(map(len, edges)):  # the same rows but for gaps
        return shared, va[np.searchsorted(xa, shared)], vb[np.searchsorted(xb, shared)]
    coarse = min(edges, key=len)
    if not len(coarse):
        return empty, empty, empty
    a, b = _binned(xa, va, coarse), _binned(xb, vb, coarse)
    there = np.isfinite(a) & np.isfinite(b)
    return coarse[there], a[there], b[there]


def _binned(x: np.ndarray, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Means of the values in (end before, end]; NaN where there is none. The first stretch is as long as the second."""
    begin = ends[0] - (ends[1] - ends[0] if len(ends) > 1 else 1.0)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.searchsorted(x, np.concatenate([[begin], ends]) + 1e-9, side="right")
    counts = np.diff(place)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, (sums[place[1:]] - sums[place[:-1]]) / counts, np.nan)
