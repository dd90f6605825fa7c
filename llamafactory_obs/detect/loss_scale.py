"""fp16: a loss scale that falls and falls."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "It says that fp16 overflows, not where. A scale that falls during the first steps is the usual search for it."
)


class LossScaleDetector:
    """Warns when the GradScaler's scale is below `floor`; once, until it has been 16 times that again.

    The scale starts at 65,536 and is halved at each overflow (torch.amp.GradScaler). Below 1 the gradients overflow
    fp16 although they are made smaller than they are: the numbers do not fit, and small gradients are lost.
    """

    def __init__(self, *, floor: float = 1.0) -> None:
        if floor <= 0:
            raise ValueError("floor must be above 0")
        self.floor = floor
        self._highest = 0.0
        self._reported = False

    def update(self, step: int, scale: float | None) -> Finding | None:
        """Takes the scale after one step; None where there is no scaler."""
        scale = as_number(scale)
        if scale is None or math.isnan(scale):
            return None
        self._highest = max(self._highest, scale)
        if scale >= 16 * self.floor:
            self._reported = False
        if self._reported or scale >= self.floor:
            return None
        self._reported = True
        text = f"The fp16 loss scale has fallen to {scale:.3g} at step {step} (highest {self._highest:.3g}): gradients"
        text += " overflow again and again. Use bf16 where the card has it; else lower the learning rate."
        evidence = {"loss_scale": plain(scale), "highest": plain(self._highest)}
        return Finding(
            "loss scale collapses", "warn", step, text, evidence, "keep", {"bf16": True, "fp16": False}, _LIMITS
        )
