"""The trend of a long noisy series, from a bounded number of block medians."""

from collections import deque
from itertools import pairwise
from statistics import median


class BlockTrend:
    """Medians of blocks of `block` values, 24 to 48 of them, and the straight line through them.

    A full store either drops its oldest block (`sliding`: the last 48 blocks) or merges neighbours in pairs and doubles
    the block length (the whole series since the start). So the memory is bounded, and the work per value is O(1)
    on average: a block median once per block, a fit once per block.

    Fit: Theil's incomplete method, the median of the slopes between block i and block i + n/2. It has the same
    breakdown point against outliers in each half as Theil-Sen has, at n/2 instead of n(n-1)/2 slopes.
    """

    FEWEST, MOST = 24, 48

    def __init__(self, block: int, sliding: bool) -> None:
        self.block, self.sliding = block, sliding
        self._blocks: deque[tuple[float, float]] = deque()  # (middle step, median value)
        self._steps: list[int] = []
        self._values: list[float] = []

    def push(self, step: int, value: float) -> bool:
        """Adds one value; True when that completed a block and there are enough blocks for `fit`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._values) < self.block:
            return False
        self._blocks.append((median(self._steps), median(self._values)))
        self._steps, self._values = [], []
        if len(self._blocks) > self.MOST:
            if self.sliding:
                self._blocks.popleft()
            else:
                self._merge()
        return len(self._blocks) >= self.FEWEST

    def _merge(self) -> None:
        last = self._blocks.pop()  # the odd one: it becomes half of the next block and is dropped
        b = list(self._blocks)
        self._blocks = deque(((p[0] + q[0]) / 2, (p[1] + q[1]) / 2) for p, q in zip(b[::2], b[1::2], strict=True))
        self.block *= 2
        self._steps, self._values = [round(last[0])] * (self.block // 2), [last[1]] * (self.block // 2)

    def fit(self) -> dict[str, float]:
        """The line and how far it can be trusted.

        slope     value per step
        level     value of the line at the last block
        rise      slope x length: how much the line rises over the blocks, in the unit of the values
        noise     1.4826 MAD of the blocks around the line
        steady    share of neighbouring blocks between which the value rises (noise alone gives 0.5, stairs near 0)
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
            "steady": sum(u > 0 for u in ups) / len(ups),
            "recent": recent,
            "jumps": sum(sorted(ups)[-len(ups) // 4 :]) / total if total > 0 else 1.0,
            "steps": x[-1] - x[0],
        }

    @staticmethod
    def _slope(x: list[float], y: list[float]) -> float:
        half = len(x) // 2
        runs = [(x[i + half] - x[i], y[i + half] - y[i]) for i in range(len(x) - half)]
        return median(dy / dx if dx else 0.0 for dx, dy in runs)
