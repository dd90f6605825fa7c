"""Memory that grows from step to step: a leak, with a forecast of when the limit is reached."""

import math

from .block_trend import BlockTrend
from .finding import Finding, Level
from .numbers import as_number, plain

_GIB = {"GiB": 1.0, "GB": 1.0, "bytes": 1.0 / 2**30}
_LIMITS = (
    "A straight line through the past steps; it knows nothing of longer batches, of an evaluation or of a garbage "
    "collection to come. Growth from ever longer batches is not told from a leak unless the load is given."
)


class GrowthDetector:
    """Finds a steady rise of a memory figure, one value per optimizer step, and says when it meets `limit`.

    `unit` is that of the values and the limit: "GiB", "GB" or "bytes". The first `warmup` steps are not looked at
    (allocator and optimizer state fill up then). Where `load` is given (longest sequence of the batch), every new
    maximum of it starts the observation anew: a rise that comes with a longer batch is explained by it.

    Two views of the series, see BlockTrend: the last 384 steps (fast leaks, also late ones) and all steps since the
    observation began (slow leaks). Either is a leak if
      rise >= max(`min_rise` x level, 3 x noise)   it matters, and it stands out
      recent slope >= 0.75 of the slope            it still rises: a warm-up that levels off is no leak
      largest quarter of the steps <= 0.7 of rise  it is no sum of a few jumps
    These figures were set on simulated series (noise, random walk, plateau, saturation, stairs, sawtooth), not on real
    runs. What still alarms falsely: a rise that levels off over more than 100 steps, 10 or more stairs without load.
    A leak of 6 MB per step is seen after 240 to 430 steps with noise of 0.1 GB (1 sigma), after some 430 with 0.2 GB.

    Reported once: "error" when the limit is forecast before `total_steps` (or the end is not known), else "warn";
    a later forecast that moves before the end raises the warn to an error once. The info "growth_over" follows when the
    newer half of that view rises by less than a quarter of what was reported; then the observation starts anew.
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        unit: str = "GiB",
        total_steps: int | None = None,
        warmup: int = 50,
        min_rise: float = 0.005,
        name: str = "memory_growth",
        label: str = "GPU memory",
    ) -> None:
        if unit not in _GIB:
            raise ValueError(f"unit must be one of {', '.join(_GIB)}, got {unit!r}")
        self.limit, self.unit, self.total_steps = limit, unit, total_steps
        self.warmup, self.min_rise = warmup, min_rise
        self.name, self.label = name, label
        self._seen = 0
        self._last_step: int | None = None
        self._top_load: float | None = None
        self._level = ""
        self._since: int | None = None
        self._view, self._slope = 0, 0.0  # which view has found the leak, and its slope then
        self._restart()

    def _restart(self) -> None:
        self._views = (BlockTrend(block=8, sliding=True), BlockTrend(block=16, sliding=False))

    def update(self, step: int, value: float | None, load: float | None = None) -> Finding | None:
        """Takes the memory of one step (peak or allocated, always the same) and the longest sequence of its batch."""
        value, load = as_number(value), as_number(load)
        if value is None or not math.isfinite(value) or value < 0:
            return None
        self._seen += 1
        if self._last_step is not None and step <= self._last_step:
            self._seen = 1  # the step count went back: another process, with its own warm-up
            self._restart()
        self._last_step = step
        if load is not None and math.isfinite(load) and (self._top_load is None or load > self._top_load):
            self._top_load = load
            self._restart()
        if self._seen <= self.warmup:
            return None
        ready = [view.push(step, value) for view in self._views]
        fits = [view.fit() if ok else None for view, ok in zip(self._views, ready, strict=True)]
        for number, fit in enumerate(fits):
            if fit and self._is_leak(fit):
                return self._report(step, number, fit)
        fit = fits[self._view]
        if self._level and fit and fit["recent"] < self._slope / 4:
            return self._over(step, fit)
        return None

    def _least_rise(self, fit: dict[str, float]) -> float:
        return max(self.min_rise * fit["level"], 3 * fit["noise"])

    def _is_leak(self, fit: dict[str, float]) -> bool:
        return (
            fit["slope"] > 0
            and fit["rise"] >= self._least_rise(fit)
            and fit["recent"] >= 0.75 * fit["slope"]
            and fit["jumps"] <= 0.7
        )

    def _forecast(self, step: int, fit: dict[str, float]) -> int | None:
        if self.limit is None:
            return None
        return max(step, round(step + (self.limit - fit["level"]) / fit["slope"]))

    def _report(self, step: int, number: int, fit: dict[str, float]) -> Finding | None:
        full = self._forecast(step, fit)
        before_end = full is not None and (self.total_steps is None or full <= self.total_steps)
        level: Level = "error" if before_end else "warn"
        if self._level == level or self._level == "error":
            return None
        if not self._level:
            self._since, self._view, self._slope = step - round(fit["steps"]), number, fit["slope"]
        self._level = level
        to_gib = _GIB[self.unit]
        shown = "GB" if self.unit == "GB" else "GiB"
        text = (
            f"{self.label} has grown by {fit['slope'] * to_gib * 1000:.3g} {shown} per 1,000 steps since about step "
            f"{self._since}, now {fit['level'] * to_gib:.4g} {shown}. "
        )
        suggest = {}
        if full is not None and before_end:
            text += f"The limit of {self.limit * to_gib:.4g} {shown} is reached at about step {full}: save a "
            text += "checkpoint before that and look for tensors kept from step to step."
            suggest = {"save_steps": max(1, (full - step) // 2)}
        elif full is not None:
            text += f"The limit would be reached at about step {full}, after the end of the run: let it finish."
        else:
            text += "Look for tensors kept from step to step (losses summed without .item(), lists in callbacks)."
        evidence = {key: plain(number) for key, number in fit.items()}
        evidence |= {"unit": self.unit, "limit": plain(self.limit), "limit_at_step": full, "since": self._since}
        return Finding(self.name, level, step, text, evidence, "keep", suggest, _LIMITS)

    def _over(self, step: int, fit: dict[str, float]) -> Finding:
        since = self._since
        self._level, self._since = "", None
        self._restart()
        text = f"{self.label} has stopped growing at about step {step}; it grew since step {since}. Nothing to do."
        evidence = {key: plain(number) for key, number in fit.items()} | {"unit": self.unit, "since": since}
        return Finding("growth_over", "info", step, text, evidence, "none", {}, _LIMITS)
