"""What is ordinary for a run: a value against the values it had before."""

import math
from dataclasses import dataclass

from .evidence import FAIR, STRONG, WEAK

_MAD_TO_SIGMA = 1.4826  # MAD of a normal distribution times this is its standard deviation
ENOUGH = 12
"""Values of the past that a comparison needs; the robust rules of `detect/` judge from as many on."""


@dataclass(frozen=True)
class Ordinary:
    """The past of one column.

    Attributes:
        values: finite ones, in the order of training.
        median, spread: centre, and 1.4826 MAD but at least 2 % of the centre (a column that never moved has none).
    """

    values: tuple[float, ...]
    median: float
    spread: float

    @classmethod
    def of(cls, values: list[float]) -> "Ordinary | None":
        """None where there are fewer than `ENOUGH` finite values."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < ENOUGH:
            return None
        centre = middle(finite)
        mad = middle([abs(value - centre) for value in finite])
        return cls(tuple(finite), centre, max(_MAD_TO_SIGMA * mad, 0.02 * abs(centre), 1e-12))

    def z(self, value: float) -> float:
        """Robust z-score."""
        return (value - self.median) / self.spread

    def share_below(self, value: float) -> float:
        """Percentile of a value, 0..1."""
        return sum(past <= value for past in self.values) / len(self.values)

    def weight(self, value: float, *, high: bool = True, low: bool = True) -> float:
        """How much it says that a column has this value.

        Beyond all values of the past and z of 8 or more: STRONG; beyond them and z of 5: FAIR; z of 3.5 (Iglewicz and
        Hoaglin 1993) among the outermost hundredth: WEAK; else nothing. By chance, of 100,000 normal samples against 12
        values of the past 0.06 % were STRONG and 0.5 % FAIR; against 24 none and 0.07 %.

        Args:
            high, low: which side counts.
        """
        if not math.isfinite(value):
            return 0.0
        z = self.z(value)
        if (z > 0 and not high) or (z < 0 and not low):
            return 0.0
        beyond = value > max(self.values) or value < min(self.values)
        if beyond and abs(z) >= 8:
            return STRONG
        if beyond and abs(z) >= 5:
            return FAIR
        rank = self.share_below(value)
        return WEAK if abs(z) >= 3.5 and (rank >= 0.99 or rank <= 0.01) else 0.0


def middle(values: list[float]) -> float:
    """The median.

    Raises:
        IndexError: there is no value.
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def short(value: float | None) -> str:
    """A number for a sentence."""
    if value is None:
        return "missing"
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.4g}"
