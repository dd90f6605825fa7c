"""Median and median absolute deviation of the last values of a stream."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable


class RollingMedian:
    """The last `size` numbers, with their median and MAD.

    The values are kept in arrival order and in sorted order. A push costs one binary search and one short memory move,
    `median` O(1), `mad` O(log size): the k-th nearest neighbour of the median in a sorted list.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self._arrival: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def push(self, value: float) -> None:
        """Adds a finite number; drops the oldest one when full."""
        if len(self._arrival) == self._arrival.maxlen:
            del self._sorted[bisect_left(self._sorted, self._arrival[0])]
        self._arrival.append(value)
        insort(self._sorted, value)

    def replace(self, values: Iterable[float]) -> None:
        """Forgets everything and takes these numbers (the last `size` of them)."""
        self._arrival.clear()
        self._arrival.extend(values)
        self._sorted = sorted(self._arrival)

    def extend(self, values: Iterable[float]) -> None:
        """Adds finite numbers, the oldest first."""
        self._arrival.extend(values)
        self._sorted = sorted(self._arrival)

    def median(self) -> float:
        """The median; the mean of the two middle values for an even count. At least one value must be there."""
        s, n = self._sorted, len(self._sorted)
        return s[n // 2] if n % 2 else (s[n // 2 - 1] + s[n // 2]) / 2

    def mad(self) -> float:
        """The median (the upper one for an even count) of |value - median|, in the unit of the values."""
        s, n, center = self._sorted, len(self._sorted), self.median()
        k = n // 2 + 1  # the k nearest values to the center are a run s[i : i + k]: find the run that starts best
        low, high = 0, n - k
        while low < high:
            middle = (low + high) // 2
            if center - s[middle] > s[middle + k] - center:
                low = middle + 1
            else:
                high = middle
        return max(center - s[low], s[low + k - 1] - center)
