"""What changes in a curve from one look to the next: the page keeps its points and is told only what is new."""

import numpy as np

from ..charts.text import compact
from ..live import Points

#: looks that can be told apart; who has seen less gets all of it
_REMEMBERED = 600


class Line:
    """One curve as the page has it."""

    def __init__(self):
        self._points: Points | None = None
        self._changes: list[tuple[int, int]] = []  # (tick, first step that was new or another)
        self._oldest = 0  # who has not seen this tick gets all points

    def update(self, points: Points, tick: int) -> bool:
        """Take the newest points; True where something has changed."""
        if points is self._points:
            return False
        first = _first_change(self._points, points)
        if self._points is None:
            self._oldest = tick
        self._points = points
        if first is None:
            return False
        self._changes.append((tick, first))
        if len(self._changes) > _REMEMBERED:
            self._oldest = self._changes.pop(0)[0]
        return True

    def since(self, tick: int) -> dict | None:
        """What has changed after a tick; None where nothing has.

        Returns:
            `from`: forget this step and all behind it (None: everything); `s`: steps as differences, `v`: values,
            `m`: means (None where there are none).
        """
        news = [first for when, first in self._changes if when > tick]
        if not news:
            return None
        points = self._points
        begin = None if tick < self._oldest else min(news)
        place = 0 if begin is None else int(np.searchsorted(points.steps, begin))
        steps = points.steps[place:]
        means = None if points.means is None else [_mean(one) for one in points.means[place:].tolist()]
        values = [compact(value) for value in points.values[place:].tolist()]
        return {"from": begin, "s": np.diff(steps, prepend=0).tolist(), "v": values, "m": means}


def _mean(value: float) -> float | None:
    return compact(value) if value == value else None


def _first_change(old: Points | None, new: Points) -> int | None:
    """The first step at which two sets of points differ, None where they are the same."""
    if old is None:
        return int(new.steps[0]) if len(new.steps) else None
    count = min(len(old.steps), len(new.steps))
    same = (old.steps[:count] == new.steps[:count]) & _equal(old.values[:count], new.values[:count])
    if old.means is not None and new.means is not None:
        same &= _equal(old.means[:count], new.means[:count])
    elif (old.means is None) != (new.means is None):
        same[:] = False
    place = count if same.all() else int(np.argmin(same))
    ends = [int(points.steps[place]) for points in (old, new) if place < len(points.steps)]
    return min(ends) if ends else None


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | ((one != one) & (other != other))
