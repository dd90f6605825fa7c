"""Room that runs out: free disk, memory that can still be taken."""

import math

from .finding import Finding, Level
from .numbers import as_number, plain


class LowRoomDetector:
    """Finds an amount that falls below a floor, once; it is over when the amount is `margin` above the floor again.

    Args:
        name: of the finding; the one that closes it is `name`_over.
        label: what it is, e.g. "free disk of the output folder".
        advice: the one thing to do.
        level: of the finding.
        limits: what it may not be taken to mean.
        margin: share of the floor.
    """

    def __init__(
        self, name: str, label: str, advice: str, *, level: Level = "warn", limits: str = "", margin: float = 0.25
    ) -> None:
        self.name, self.label, self.advice, self.level, self.limits = name, label, advice, level, limits
        self._margin = margin
        self._since: int | None = None

    def update(self, step: int, amount: float | None, floor: float, suggest: dict | None = None) -> Finding | None:
        """Takes one step's amount and the floor that holds for it, both in GiB, and the YAML keys to suggest then."""
        amount = as_number(amount)
        if amount is None or not math.isfinite(amount):
            return None
        evidence = {"gib": plain(amount), "floor_gib": plain(floor)}
        if self._since is None and amount < floor:
            self._since = step
            text = f"{self.label}: {amount:.2f} GiB left, wanted {floor:.2f}. {self.advice}"
            return Finding(self.name, self.level, step, text, evidence, "keep", suggest or {}, self.limits)
        if self._since is not None and amount >= floor * (1 + self._margin):
            since, self._since = self._since, None
            text = f"{self.label}: {amount:.2f} GiB left; it was under the floor since step {since}."
            return Finding(f"{self.name}_over", "info", step, text, evidence | {"since": since}, "keep")
        return None
