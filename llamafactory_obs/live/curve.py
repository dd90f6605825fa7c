"""One curve that grows: all its points in 24 bytes each, and few of them to draw."""

import math
from array import array
from bisect import bisect_left

import numpy as np

from ..charts.decimate import decimate
from .snapshot import Points


class Curve:
    """Points by step. A step that comes again replaces the old one.

    `points` gives at most `most` of them (and up to one more per bucket for values that are not finite). All points are
    thinned out anew only after `most / 4` further ones; until then the new ones are drawn as they are, so that one more
    point costs next to nothing.

    Args:
        most: points to draw.
        span: of the exponential moving average (`charts.decimate.ema`: decay 1 - 2 / (span + 1), corrected for its
            empty start); 0: no mean.
    """

    def __init__(self, most: int, span: int = 0):
        self._most, self._span = most, span
        self._steps, self._values, self._means = array("q"), array("d"), array("d")
        self._mean, self._weight = 0.0, 0.0
        self._thinned = 0  # so many of the first points are stood for by `_kept`
        self._kept = np.zeros(0, dtype=np.int64)
        self._points: Points | None = None

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, value: float) -> None:
        """One point; in most cases a later one than all others."""
        self._points = None
        if not self._steps or step > self._steps[-1]:
            self._steps.append(step)
            self._values.append(value)
            self._smooth(value)
            return
        place = bisect_left(self._steps, step)
        if self._steps[place] == step:
            self._values[place] = value
        else:
            self._steps.insert(place, step)
            self._values.insert(place, value)
        self._begin_anew()

    def cut(self, step: int) -> None:
        """Take back this step and all behind it."""
        if self._steps and self._steps[-1] >= step:
            place = bisect_left(self._steps, step)
            del self._steps[place:], self._values[place:]
            self._begin_anew()

    def set_span(self, span: int) -> None:
        """Another span of the mean, for all points."""
        if span != self._span:
            self._span = span
            self._begin_anew()

    def at(self, step: int) -> float | None:
        """The value at a step, None where there is none."""
        place = bisect_left(self._steps, step)
        return self._values[place] if place < len(self._steps) and self._steps[place] == step else None

    def points(self) -> Points:
        """What to draw."""
        if self._points is None:
            count = len(self._steps)
            if not self._thinned or count - self._thinned > self._most // 4:
                steps, values = np.array(self._steps), np.array(self._values)
                self._kept = decimate(steps, values, self._most * 3 // 8)
                self._thinned = count
            chosen = np.concatenate([self._kept, np.arange(self._thinned, count)])
            means = np.frombuffer(self._means)[chosen] if self._span and count else None
            taken = (np.frombuffer(self._steps, dtype=np.int64)[chosen], np.frombuffer(self._values)[chosen])
            self._points = Points(*(taken if count else (np.zeros(0, dtype=np.int64), np.zeros(0))), means, count)
        return self._points

    def _begin_anew(self) -> None:
        self._points, self._thinned = None, 0
        self._mean = self._weight = 0.0
        self._means = array("d")
        for value in self._values if self._span else ():
            self._smooth(value)

    def _smooth(self, value: float) -> None:
        if not self._span:
            return
        if not math.isfinite(value):
            self._means.append(math.nan)
            return
        keep = 1.0 - 2.0 / (self._span + 1.0)
        self._mean = keep * self._mean + (1.0 - keep) * value
        self._weight = keep * self._weight + (1.0 - keep)
        self._means.append(self._mean / self._weight)
