"""The trend of a long noisy series, from a bounded number of block medians."""

from collections import deque
from itertools import pairwise
from statistics import median


class BlockTrend:
    """Blocks of a series, 24 to 48 of them, and the straight line through them.

    A block is the median of `block` values. A full store either drops its oldest block (`sliding`: the last 48) or
    merges neighbours in pairs, and from then on takes the mean of twice as many medians as one block (the whole series
    since the start). So the memory is bounded, and most values cost an append; a block costs one median and one fit.

    Fit: Theil's incomplete method, the median of the slopes between block i and block i + n/2. It has the same
    breakdown point against outliers in each half as Theil-Sen has, at n/2 instead of n(n-1)/2 slopes.
    """

    FEWEST, MOST = 24, 48

    def __init__(self, block: int, sliding: bool) -> None:
        self.block, self.sliding = block, sliding
        self._blocks: deque[tuple[float, float]] = deque()  # (middle step, value)
        self._steps: list[float] = []
        self._values: list[float] = []
        self._medians = 1  # how many medians make up a block
        self._count, self._step_sum, self._value_sum = 0, 0.0, 0.0  # of the medians of the block to come

    def push(self, step: int, value: float) -> bool:
        """Adds one value; True when that completed a block and there are enough blocks for `fit`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._values) < self.block:
            return False
        self._count += 1
        self._step_sum += median(self._steps)
        self._value_sum += median(self._values)
        self._steps, self._values = [], []
        if self._count < self._medians:
            return False
        self._blocks.append((self._step_sum / self._count, self._value_sum / self._count))
        self._count, self._step_sum, self._value_sum = 0, 0.0, 0.0
        if len(self._blocks) > self.MOST:
            if self.sliding:
                self._blocks.popleft()
            else:
                self._merge()
        return len(self._blocks) >= self.FEWEST

    def _merge(self) -> None:
        step, value = self._blocks.pop()  # the odd one is the first half of the next block
        self._count, self._step_sum, self._value_sum = self._medians, step * self._medians, value * self._medians
        self._medians *= 2
        b = list(self._blocks)
        self._blocks = deque(((p[0] + q[0]) / 2, (p[1] + q[1]) / 2) for p, q in zip(b[::2], b[1::2], strict=True))

    def fit(self) -> dict[str, float]:
        """The line and how far it can be trusted.

        slope     value per step
        level     value of the line at the last block
        rise      slope x length: how much the line rises over the blocks, in the unit of the values
        noise     1.4826 MAD of the blocks around the line
        recent    slope of the newer half of the blocks
        jumps     share of the total rise that the largest quarter of the steps between neighbours makes up
        steps     length in steps, first block to last
        """
        x, y = [b[0] for b in self._blocks], [b[1] for b in self._blocks]
        n = len(x)
        slope, recent = self._slope(x, y), self._slope(x[n // 2 :], y[n // 2 :])
        center = median(v - slope * t for t, v in zip(x, y, strict=True))
        ups = [q - p for p, q in pairwise(y)]
        total = y[-1] - y[0]
        return {
            "slope": slope,
            "level": center + slope * x[-1],
            "rise": slope * (x[-1] - x[0]),
            "noise": 1.4826 * median(abs(v - center - slope * t) for t, v in zip(x, y, strict=True)),
            "recent": recent,
            "jumps": sum(sorted(ups)[-len(ups) // 4 :]) / total if total > 0 else 1.0,
            "steps": x[-1] - x[0],
        }

    @staticmethod
    def _slope(x: list[float], y: list[float]) -> float:
        half = len(x) // 2
        runs = [(x[i + half] - x[i], y[i + half] - y[i]) for i in range(len(x) - half)]
        return median(dy / dx if dx else 0.0 for dx, dy in runs)
