"""Axes: where a value stands, and which ticks a person expects."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

#: smaller values have no place of their own on a logarithmic axis
_TINY = 1e-300


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic.

    Attributes:
        low, high: finite, low < high; both above 0 where `log`.
    """

    low: float
    high: float
    log: bool = False

    def at(self, values: np.ndarray) -> np.ndarray:
        """Values as positions, 0 at `low` and 1 at `high`; not clipped. On a log axis what is not above 0 is at 0."""
        values = np.asarray(values, dtype=float)
        if not self.log:
            # halves first: the range of two huge numbers of either sign is itself no float
            with np.errstate(over="ignore"):  # a value far outside is infinitely far
                return (values / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        low, high = math.log10(self.low), math.log10(self.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            place = (np.log10(values) - low) / (high - low)
        return np.where(values > 0, place, 0.0)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, at most about `most`."""
        return _log_ticks(self.low, self.high, most) if self.log else _linear_ticks(self.low, self.high, most)


def axis_for(
    values: Iterable[np.ndarray], *, log: bool = False, zero: bool = False, include: Iterable[float] = ()
) -> Axis:
    """An axis that holds every finite value with a little room.

    Args:
        values: arrays of values; what is not finite is left out (it is drawn at the edge).
        log: a logarithmic axis; it holds the values above 0, and is linear where there is none.
        zero: a linear axis begins at 0 where no value is below.
        include: further values that must be on it, such as a limit.
    """
    finite = [array[np.isfinite(array)] for array in (np.asarray(value, dtype=float) for value in values)]
    every = np.concatenate([*finite, np.asarray(list(include), dtype=float)])
    if log and (every > _TINY).any():
        every = np.log10(every[every > _TINY])
        low, high = every.min(), every.max()
        room = max(0.04 * (high - low), 0.05)
        return Axis(float(10 ** (low - room)), float(10 ** min(high + room, 308)), log=True)
    if not every.size:
        return Axis(0.0, 1.0)
    low, high = float(every.min()), float(every.max())
    from_zero = low >= 0 and (zero or low <= 0.1 * high)
    extent = high if from_zero else 2 * (high / 2 - low / 2)
    # a line that is flat but for rounding is drawn as flat
    room = 0.05 * extent if extent > 1e-6 * abs(high) else 0.05 * abs(high) or 0.5
    return Axis(0.0 if from_zero else max(low - room, -1.7e308), min(high + room, 1.7e308))


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high / most - low / most) or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next((size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999), size * 10)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12 - math.floor(math.log10(step))) + 0.0 for i in range(max(0, count))]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = last - first + 1
    if decades >= 2:
        step = max(1, math.ceil(decades / most))
        return [10.0**power for power in range(first, last + 1, step)]
    within = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 3, 5, 7)]
    ticks = [tick for tick in within if low <= tick <= high]
    return ticks if len(ticks) >= 2 else _linear_ticks(low, high, most)
