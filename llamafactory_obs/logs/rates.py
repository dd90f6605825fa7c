"""Where the learning rate begins a schedule anew: it had run out and is back at a rate that trains."""

from collections.abc import Sequence
from itertools import compress, islice
from operator import lt

from .curves import Column
from .scan import there

SPENT = 0.02  # of the highest rate so far: the schedule had run out
BACK = 0.05  # of it: training again
SAME_PEAK = 0.02


def schedule_restarts(lr: Column, loss: Column | None) -> list[int]:
    """Rows where another start begins, by the rate alone.

    A scheduler's own restarts (cosine with restarts) climb to the same rate each time and are none.
    """
    rows, values = there(lr)
    peak = 0.0
    found, lowest_at, fallen = [], 0, False
    for at in _turns(values):
        value = values[at]
        if fallen and value >= BACK * peak:
            found.append(lowest_at)
            peak, fallen = value, False
        peak = max(peak, value)
        if peak > 0.0 and value <= SPENT * peak:
            fallen, lowest_at = True, at
    if not found:
        return []
    parts = zip([0, *found], [*found, len(values)], strict=True)
    heights = [max(values[first:end]) for first, end in parts]
    if max(heights) - min(heights) <= SAME_PEAK * max(heights):
        return []
    return [rows[_first_of_new(at, values, rows, loss)] for at in found]


def _turns(values: Sequence[float]) -> list[int]:
    """Both ends of each climb: between them the rate only falls, so nothing begins."""
    rises = list(compress(range(1, len(values)), map(lt, values, islice(values, 1, None))))
    return sorted({0, *(at - 1 for at in rises), *rises}) if len(values) else []


def _first_of_new(lowest: int, values: Sequence[float], rows: Sequence[int], loss: Column | None) -> int:
    """The lowest rate is the old schedule's last row or the new one's first (a warm-up begins at 0): the loss tells."""
    after = min(lowest + 1, len(values) - 1)
    if loss is None or lowest == 0:
        return after
    three = [loss[rows[at]] for at in (lowest - 1, lowest, after)]
    if None in three:
        return after
    return lowest if abs(three[1] - three[0]) > abs(three[2] - three[1]) else after
