"""`auto`: does a finding call for its remedy now? Plain decisions; the same on every rank, because the findings are."""

from ..detect import Finding
from .options import ControlOptions
from .order import Order

#: findings that a smaller rate, or a stop, is the remedy for, and those after which there is nothing left to scale
SPIKES, NONFINITE = ("spike", "diverged"), ("nan", "inf")


class Auto:
    """Decides for one run.

    Args:
        options: of `obs: {control: ...}`.
        times: how often it has scaled the rate already (before a resume).
        last: the step of the last time.
    """

    def __init__(self, options: ControlOptions, times: int = 0, last: int | None = None):
        self._options, self.times, self.last = options, times, last
        self._over = False

    def decide(self, step: int, finding: Finding) -> Order | None:
        """The order that a finding at `step` calls for; None where there is nothing to do, or not any more."""
        worth = finding.action == "kill" or finding.level == "error"
        if self._options.auto == "off" or self._over or not worth:
            return None
        if self._options.auto == "stop":
            if finding.name not in SPIKES + NONFINITE:
                return None
            self._over = True
            return Order(stop=True, save=finding.name in SPIKES)  # a checkpoint of NaN would bury the last good one
        if finding.name not in SPIKES or self.times >= self._options.max_times:
            return None
        if self.last is not None and step - self.last <= self._options.cooldown_steps:
            return None
        self.times, self.last = self.times + 1, step
        return Order(lr_scale=self._options.lr_scale)
