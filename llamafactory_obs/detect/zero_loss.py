"""A training loss of exactly 0.0 that is no convergence."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "A log rounds the loss to four digits: 0.0 can be an honest small loss. It is held for one where the loss had come "
    "down to the last digit by itself, or where the gradient norm is above 0."
)


class ZeroLossDetector:
    """Finds `patience` rows in a row whose loss is 0.0 and which nothing explains as convergence.

    Three things write a 0.0: labels that are all masked (the norm is 0.0 too), a NaN that the Trainer hides (the norm
    is NaN: NonFiniteDetector says so), and rounding. Rounding is held for it where the norm is above 0 and finite, or
    where the median of the last losses above 0 is no more than `digits` of the last digit (1e-4).
    Reported once; `patience` losses above 0 in a row close it with the info "zero_loss_over".
    """

    def __init__(self, *, patience: int = 5, digits: int = 50) -> None:
        if patience < 1 or digits < 1:
            raise ValueError("patience and digits must be at least 1")
        self.patience, self.small = patience, digits * 1e-4
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._before: list[float] = []  # the last losses above 0
        self._since: int | None = None
        self._run = self._positive = 0
        self._norms: list[float] = []
        self._reported = False

    @property
    def is_open(self) -> bool:
        """Whether the next row is of interest even with a loss above 0."""
        return self._since is not None

    def update(self, step: int, loss: float | None, norm: float | None = None) -> Finding | None:
        """Takes the loss of one logged row and its gradient norm (None where it is not logged)."""
        loss, norm = as_number(loss), as_number(norm)
        if loss is None or not math.isfinite(loss):
            return None
        if loss != 0.0:
            return self._above(step, loss)
        if self._since is None:
            self._since = step
        self._run, self._positive = self._run + 1, 0
        if norm is not None and len(self._norms) < self.patience:
            self._norms.append(norm)
        if self._reported or self._run < self.patience:
            return None
        if any(not math.isfinite(n) or n > 0 for n in self._norms):
            return None  # NaN is another detector's; a norm above 0 means that something is learnt
        last = sorted(self._before)[len(self._before) // 2] if self._before else None
        if not self._norms and last is not None and last <= self.small:
            return None
        self._reported = True
        first = " from the first row on" if last is None else f" (before: {last:.4g})"
        norms = "and so is the gradient norm: nothing is learnt" if self._norms else "and no gradient norm is logged"
        text = (
            f"The loss is exactly 0.0 since step {self._since}{first}, {norms}. Stop it and check: labels all masked "
            "(`llamafactory-obs mask`), then NaN that logging_nan_inf_filter hides, then precision."
        )
        evidence = {
            "since": self._since,
            "rows": self._run,
            "loss_before": plain(last),
            "grad_norm": plain(self._norms[-1]) if self._norms else None,
        }
        sure = 0.95 if self._norms else 0.85
        return Finding("zero_loss", "error", step, text, evidence, "kill", {}, _LIMITS, None, sure)

    def _above(self, step: int, loss: float) -> Finding | None:
        self._before = [*self._before[-4:], loss]
        if self._since is None:
            return None
        self._positive += 1
        if self._reported and self._positive < self.patience:
            return None
        since, was = self._since, self._reported
        self._since, self._run, self._positive, self._norms, self._reported = None, 0, 0, [], False
        if not was:
            return None
        text = f"The loss is above 0 again at step {step} ({loss:.4g}); it was exactly 0.0 since step {since}."
        evidence = {"since": since, "loss": plain(loss)}
        return Finding("zero_loss_over", "info", step, text, evidence, "keep", {}, _LIMITS, step, 0.9)
