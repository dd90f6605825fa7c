"""Bit by bit: the first step at which each column of two runs differs."""

import numpy as np

from .axis import column
from .model import Exact, FirstDifference, Run

#: measured by a clock or of the machine: never the same twice
_OF_THE_MACHINE = (
    "time/",
    "system/",
    "checkpoint/",
    "eval/runtime",
    "eval/samples_per_second",
    "eval/steps_per_second",
)


def exact(a: Run, b: Run) -> Exact | None:
    """Compare every column that both have and that follows from the training alone; None without a common step."""
    names = [
        name
        for name in a.curves.columns
        if name in b.curves.columns and not name.startswith(_OF_THE_MACHINE) and not name.endswith("runtime")
    ]
    steps: set[int] | np.ndarray = np.zeros(0, dtype=np.int64)
    first, compared = [], []
    for name in names:
        (xa, va), (xb, vb) = column(a.curves, name), column(b.curves, name)
        common, ia, ib = np.intersect1d(xa, xb, assume_unique=True, return_indices=True)
        if not len(common):
            continue
        compared.append(name)
        steps = np.union1d(steps, common)
        x, y = va[ia], vb[ib]
        differ = np.flatnonzero((x != y) & ~(np.isnan(x) & np.isnan(y)))
        if len(differ):
            at = int(differ[0])
            first.append(FirstDifference(name, int(common[at]), float(x[at]), float(y[at])))
    if not compared:
        return None
    first.sort(key=lambda one: one.step)
    last = None
    if first:
        before = steps[steps < first[0].step]
        last = int(before[-1]) if len(before) else None
    rounded = a.curves.source != "obs" or b.curves.source != "obs"
    return Exact(compared, len(steps), first, last, rounded)
