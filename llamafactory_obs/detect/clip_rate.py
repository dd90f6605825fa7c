"""Clipping that has become a constant factor."""

from collections import deque

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "Many healthy fine-tuning runs are clipped at nearly every step. Adam divides a constant factor out again, so it"
    " costs little there; with SGD it scales the learning rate."
)


class ClipRateDetector:
    """Share of the last `window` updates whose gradients were clipped; at `high` or more over a full window an info.

    Reported again only after the share has been below `low`. The figures are choices, not measurements.
    """

    def __init__(self, *, window: int = 100, high: float = 0.98, low: float = 0.8) -> None:
        if window < 1 or not 0 < low < high <= 1:
            raise ValueError("wanted window >= 1 and 0 < low < high <= 1")
        self.window, self.high, self.low = window, high, low
        self._clipped: deque[bool] = deque(maxlen=window)
        self._count = 0
        self._reported = False

    def rate_with(self, coefficient: float | None) -> float | None:
        """The share with one more step, which is not taken in; None without any step."""
        seen, count = len(self._clipped), self._count
        clipped = as_number(coefficient)
        if clipped is not None:
            if seen == self.window:
                seen, count = seen - 1, count - self._clipped[0]
            seen, count = seen + 1, count + (clipped != 1.0)
        return count / seen if seen else None

    def update(self, step: int, coefficient: float | None, limit: float | None = None) -> Finding | None:
        """Takes the factor that clipping applied at one step (1 = not clipped).

        Args:
            limit: `max_grad_norm`, for the text.
        """
        coefficient = as_number(coefficient)
        if coefficient is None:
            return None
        if len(self._clipped) == self.window:
            self._count -= self._clipped[0]
        self._clipped.append(coefficient != 1.0)  # NaN: clipped
        self._count += self._clipped[-1]
        rate = self._count / len(self._clipped)
        if rate < self.low:
            self._reported = False
        if self._reported or len(self._clipped) < self.window or rate < self.high:
            return None
        self._reported = True
        which = f"max_grad_norm {limit:g}" if limit else "max_grad_norm"
        text = (
            f"{rate:.0%} of the last {self.window} updates were clipped, up to step {step}: {which} works as a constant"
        )
        text += " factor and no longer tells an outlier from an ordinary step. Compare it with train/grad_norm."
        return Finding("always clipped", "info", step, text, {"clip_rate": plain(rate)}, "none", {}, _LIMITS)
