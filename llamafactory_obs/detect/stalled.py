"""A gradient norm of (nearly) zero: nothing is being learnt."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "A data set that is fully memorised also gives gradients near zero, and so does a loss scale that underflows; "
    "look at the loss before it is called a wrong configuration."
)


class StalledDetector:
    """Finds a gradient norm below `threshold` on `patience` optimizer steps in a row; 0.0 counts.

    1e-6 is far below what a run that learns shows: the lowest norm in 28 public logs that are not ill is 9e-5, at a
    loss of 1e-5. Reported once; the first norm at or above the threshold closes it with the info "learning_again".
    A missing norm changes nothing. A non-finite or a negative one is no small norm and breaks the row.
    """

    def __init__(self, *, threshold: float = 1e-6, patience: int = 5) -> None:
        if threshold <= 0 or patience < 1:
            raise ValueError("threshold must be above 0 and patience at least 1")
        self.threshold, self.patience = threshold, patience
        self._since: int | None = None
        self._run = 0
        self._reported = False

    @property
    def is_open(self) -> bool:
        """Whether the next step is of interest even if it is a good one."""
        return self._since is not None

    def update(self, step: int, norm: float | None) -> Finding | None:
        """Takes the norm before clipping of one optimizer step."""
        norm = as_number(norm)
        if norm is None:
            return None
        if not 0 <= norm < self.threshold:  # NaN compares false and lands here as well
            return self._moving(step, norm)
        if self._run == 0:
            self._since = step
        self._run += 1
        if self._reported or self._run < self.patience:
            return None
        self._reported = True
        text = (
            f"Learning stands still since step {self._since}: the gradient norm is {norm:.3g}, {self._run} steps in a "
            f"row. Stop it and check lora_target, the trainable parameters and the labels (all masked?)."
        )
        evidence = {
            "norm": plain(norm),
            "threshold": self.threshold,
            "since": self._since,
            "steps_in_a_row": self._run,
        }
        return Finding("stalled", "error", step, text, evidence, "kill", {}, _LIMITS)

    def _moving(self, step: int, norm: float) -> Finding | None:
        was_reported, since = self._reported, self._since
        self._since, self._run, self._reported = None, 0, False
        if not was_reported or not math.isfinite(norm):
            return None
        text = f"The gradient norm is {norm:.3g} at step {step}: learning goes on. It stood still since step {since}."
        return Finding("learning_again", "info", step, text, {"norm": plain(norm), "since": since}, "keep", {}, _LIMITS)
