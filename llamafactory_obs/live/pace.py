"""How long a step takes at present, what evaluations and saves take beside it, and how long is left."""

from collections import deque
from statistics import fmean, median

#: distances between two steps that count, and those with an evaluation or a save in them
_WINDOW, _SPECIAL = 256, 32
#: one step counts at most so many times the median: a single hitch says nothing about the steps to come
_HITCH = 10.0


class Pace:
    """Takes the end of each step and the steps behind which something else was done.

    The time of a step is the mean of the last `_WINDOW` distances between two steps' ends, each counted at most
    `_HITCH` times their median. An evaluation or a save falls between two steps: what such a distance has beyond the
    median is its price. The median of these prices is added for each step, times how often there was one since this
    start of training. The first two steps say something; each start of training begins anew.
    """

    def __init__(self):
        self._special: set[tuple[int, int]] = set()  # (segment, step)
        self.begin(0)

    def begin(self, segment: int) -> None:
        """A start of training."""
        self._segment = segment
        self._special = {one for one in self._special if one[0] >= segment}
        self._last: tuple[int, float] | None = None
        self._plain: deque[float] = deque(maxlen=_WINDOW)
        self._with_special: deque[float] = deque(maxlen=_SPECIAL)
        self._steps = self._specials = 0
        self._known: tuple[float | None, float] | None = None

    def step(self, step: int, time: float) -> None:
        """A step of this start has ended (Unix seconds)."""
        if self._last is not None:
            before, begun = self._last
            if step <= before:
                return
            each = max(0.0, time - begun) / (step - before)  # rows may be missing: a full disk
            special = (self._segment, before) in self._special
            (self._with_special if special else self._plain).append(each)
            self._steps += step - before
            self._specials += special
        self._last, self._known = (step, time), None

    def special(self, segment: int, step: int) -> None:
        """There was an evaluation or a save behind this step."""
        self._special.add((segment, step))

    @property
    def step_seconds(self) -> float | None:
        """Seconds for one step with its share of evaluations and saves."""
        return self._look()[0]

    @property
    def longest(self) -> float:
        """The longest of the recent distances between two steps, 0 where there is none."""
        return self._look()[1]

    def _look(self) -> tuple[float | None, float]:
        if self._known is None:
            self._known = self._count()
        return self._known

    def _count(self) -> tuple[float | None, float]:
        steps = self._plain or self._with_special
        if not steps:
            return None, 0.0
        usual = median(steps)
        seconds = fmean(min(one, _HITCH * usual) for one in steps)
        if self._plain and self._with_special:
            price = median(max(0.0, one - usual) for one in self._with_special)
            seconds += price * self._specials / self._steps
        return seconds, max((*steps, *self._with_special))
