"""Moments of the optimizer that are broken, or too small to be of use."""

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "Seen at the steps at which the moments are looked at, so it may have begun earlier. Values without a gradient so"
    " far (tokens that never occurred) have small moments and are healthy."
)


class MomentsDetector:
    """Judges the counts of `callbacks.moments`.

    `broken moments` (error): a value that is not finite, or a negative second moment; every later step of that weight
    is non-finite as well. Reported once.
    `vanished moments` (warn): on `patience` looks in a row, sqrt(v) < eps in at least `share` of the values: there
    Adam's eps sets the size of the step, which is far smaller than the learning rate says. Reported once, until it is
    over. 0.99 is a choice: an untied embedding whose tokens hardly occur is a large part of a small model.
    """

    def __init__(self, *, share: float = 0.99, patience: int = 2) -> None:
        if not 0 < share <= 1 or patience < 1:
            raise ValueError("wanted 0 < share <= 1 and patience of at least 1")
        self.share, self.patience = share, patience
        self._row = 0
        self._broken = False

    def update(self, step: int, bad: float | None, tiny_share: float | None) -> list[Finding]:
        """Takes one look: values that are broken, share of second moments below eps; None where unknown."""
        found = []
        bad, tiny_share = as_number(bad), as_number(tiny_share)
        if bad and not self._broken:
            self._broken = True
            text = (
                f"{bad:.0f} moments of the optimizer are not finite or are negative second moments at step {step}: the"
                " weights that they belong to are lost. Stop, and go back to a checkpoint before it."
            )
            found.append(Finding("broken moments", "error", step, text, {"values": plain(bad)}, "kill", {}, _LIMITS))
        if tiny_share is None:
            return found
        self._row = self._row + 1 if tiny_share >= self.share else 0
        if self._row == self.patience:
            text = (
                f"{tiny_share:.1%} of the second moments are below Adam's eps at step {step}: the gradients are so"
                " small that eps sets the step. Check that the batches have labels; if so, lower adam_epsilon."
            )
            evidence = {"share": plain(tiny_share), "looks": self._row}
            found.append(Finding("vanished moments", "warn", step, text, evidence, "keep", {}, _LIMITS))
        return found
