"""A moving ratio that leaves its range."""

import math
from collections import deque

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "The range is a habit of the user, not a law: a healthy share differs by data set. Outside of it the labels can "
    "be right, inside of it they can be wrong."
)


class BandDetector:
    """Watches sum(numerator) / sum(denominator) over the last `window` steps against [`low`, `high`].

    Meant for the supervised-token ratio: label tokens over real tokens (attention mask, no padding). Weighted by
    tokens, because the mean of per-step ratios lets short batches count as much as long ones.
    Judged once `min_steps` steps are there. Leaving the range gives one warn, named `name`_low or `name`_high; being
    back inside by `margin` x (high - low) gives the info `name`_back, so a ratio on the edge does not flicker.
    Steps whose figures are missing, non-finite or negative, or whose denominator is 0, are left out.
    The sums are exact while the figures are whole numbers, as token counts are.
    """

    def __init__(
        self,
        low: float = 0.2,
        high: float = 0.4,
        *,
        window: int = 50,
        min_steps: int = 10,
        margin: float = 0.05,
        name: str = "supervised_ratio",
        label: str = "share of supervised tokens",
        advice: str = "Check the label mask on a few samples, or set mask_range to what this data set should give.",
    ) -> None:
        if not low < high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        if not 1 <= min_steps <= window:
            raise ValueError("wanted 1 <= min_steps <= window")
        if not 0 <= margin < 0.5:
            raise ValueError("margin must be in [0, 0.5)")
        self.low, self.high, self.min_steps = low, high, min_steps
        self.name, self.label, self.advice = name, label, advice
        self._inner = margin * (high - low)
        self._pairs: deque[tuple[float, float]] = deque(maxlen=window)
        self._top = self._bottom = 0.0
        self._side = ""  # "", "low" or "high": what has been reported
        self._since: int | None = None

    @property
    def value(self) -> float | None:
        """The ratio over the present window, None before the first usable step."""
        return self._top / self._bottom if self._bottom else None

    def update(self, step: int, numerator: float | None, denominator: float | None) -> Finding | None:
        """Takes the two counts of one step, e.g. supervised tokens and real tokens of all ranks."""
        top, bottom = as_number(numerator), as_number(denominator)
        if top is None or bottom is None or not math.isfinite(top + bottom) or top < 0 or bottom <= 0:
            return None
        if len(self._pairs) == self._pairs.maxlen:
            old_top, old_bottom = self._pairs[0]
            self._top, self._bottom = self._top - old_top, self._bottom - old_bottom
        self._pairs.append((top, bottom))
        self._top, self._bottom = self._top + top, self._bottom + bottom
        if len(self._pairs) < self.min_steps:
            return None
        ratio = self._top / self._bottom
        side = "low" if ratio < self.low else "high" if ratio > self.high else ""
        if side and side != self._side:
            self._side, self._since = side, step
            return self._left(step, ratio, side)
        if self._side and self.low + self._inner <= ratio <= self.high - self._inner:
            return self._back(step, ratio)
        return None

    def _evidence(self, ratio: float) -> dict:
        return {
            "ratio": plain(ratio),
            "low": self.low,
            "high": self.high,
            "steps": len(self._pairs),
            "numerator": plain(self._top, 12),
            "denominator": plain(self._bottom, 12),
            "since": self._since,
        }

    def _left(self, step: int, ratio: float, side: str) -> Finding:
        text = (
            f"The {self.label} is {ratio:.3f} over the last {len(self._pairs)} steps, "
            f"{'below' if side == 'low' else 'above'} {self.low:g} to {self.high:g}, since step {step}. {self.advice}"
        )
        return Finding(f"{self.name}_{side}", "warn", step, text, self._evidence(ratio), "keep", {}, _LIMITS)

    def _back(self, step: int, ratio: float) -> Finding:
        since, evidence = self._since, self._evidence(ratio)
        self._side, self._since = "", None
        text = f"The {self.label} is back in range at step {step}: {ratio:.3f}. It was outside since step {since}."
        return Finding(f"{self.name}_back", "info", step, text, evidence, "none", {}, _LIMITS)
