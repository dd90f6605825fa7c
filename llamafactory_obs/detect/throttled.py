"""A card that its heat or its hardware slows down for a while."""

import math
from collections import deque

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "Sampled about once a second. The power limit that the driver keeps (software power cap) is normal under full load"
    " and is not counted here; it stands in system/gpu_power_capped."
)


class ThrottledDetector:
    """Finds a card slowed down for half of the time, over at least `min_seconds`; over when below a tenth.

    The share is weighted by the steps' time.
    """

    def __init__(self, *, share: float = 0.5, over: float = 0.1, min_seconds: float = 60.0, min_steps: int = 3) -> None:
        if not 0 <= over < share <= 1 or min_seconds <= 0 or min_steps < 1:
            raise ValueError("wanted 0 <= over < share <= 1, min_seconds above 0 and min_steps at least 1")
        self.share, self.over, self.min_seconds, self.min_steps = share, over, min_seconds, min_steps
        self._window: deque[tuple[float, float]] = deque()
        self._seconds = self._slowed = 0.0
        self._since: int | None = None

    def update(
        self, step: int, seconds: float | None, throttled: float | None, temperature: float | None = None
    ) -> Finding | None:
        """Takes one step: its wall time, the share of it in which the card was slowed down (0..1), its heat in C."""
        seconds, throttled = as_number(seconds), as_number(throttled)
        if throttled is None or seconds is None or not math.isfinite(seconds + throttled) or seconds <= 0:
            return None
        self._window.append((seconds, seconds * throttled))
        self._seconds, self._slowed = self._seconds + seconds, self._slowed + seconds * throttled
        while len(self._window) > self.min_steps and self._seconds - self._window[0][0] >= self.min_seconds:
            old, slowed = self._window.popleft()
            self._seconds, self._slowed = self._seconds - old, self._slowed - slowed
        if len(self._window) < self.min_steps or self._seconds < self.min_seconds:
            return None
        share = max(0.0, self._slowed) / self._seconds
        evidence = {"share": plain(share), "seconds": plain(self._seconds), "temperature_c": plain(temperature)}
        if self._since is None and share >= self.share:
            self._since = step
            heat = "" if temperature is None else f" at {temperature:.0f} C"
            text = (
                f"The GPU is slowed down by heat or hardware {share:.0%} of the last {self._seconds:.0f} s{heat}: every"
                " step takes longer. Look at its cooling and power supply (`nvidia-smi -q -d PERFORMANCE`)."
            )
            return Finding("gpu_throttled", "warn", step, text, evidence, "keep", {}, _LIMITS)
        if self._since is not None and share < self.over:
            since, self._since = self._since, None
            text = f"The GPU runs at its own speed again; it was slowed down since step {since}."
            return Finding("gpu_throttled_over", "info", step, text, evidence | {"since": since}, "keep", {}, _LIMITS)
        return None
