"""A training loss that leaves its level: a spike that comes back, a jump that does not, a divergence."""

import math
from collections import deque
from itertools import pairwise
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_MAD_TO_SIGMA = 1.4826
_LIMITS = (
    "It compares the loss with its own recent level. It does not know whether the data changed there, and it cannot "
    "say why the loss rose: the candidates are judged apart."
)


class LossSpikeDetector:
    """Judges y = ln(loss), one logged row at a time, against the level of the rows before it.

    Level m: median of the last 32 accepted y, or of the last 8 plus s/2 where that is lower (a falling loss).
    Noise s: 1.4826 MAD of the last 128 differences / sqrt(2), at least 0.03. Spread w: that of the last 128 distances
    from the median of 32 where it is larger, up to twice s (noise whose neighbours are alike); z = (y - m) / w. Reach
    r: the largest y - m of these 128. The level is renewed every `RENEW` accepted rows, the others every
    `RENEW_NOISE` (every row at the start), so that most rows cost some comparisons. An episode opens when
      fast   y - m > ln 1.5, > 6 s and > 1.5 r: one row is enough
      slow   C = max(0, C + min(z, 4) - 0.75) reaches 8 and the median of the last 5 rows is above m + ln 1.15
    and the loss is more than a floor above its level: 0.1 nats, or `share` of the loss at the start where that is
    less. The rule is that of Page's CUSUM on a robust z-score; window, cap, 0.75 and 8 are those measured in
    docs/diagnose.md. Without the floor the relative jumps of a memorising run (loss 0.002) alarm; a loss that is no
    cross-entropy (it begins at 0.3) has a scale of its own. Below it a rise is told only where five rows say so:
    their median is above m + ln 2 and above 5 s; it is then called `mild`.

    Rows of an open episode are no part of the level. It ends as
      spike_over  (info)   `CALM` rows in a row are back; `until` is the last row that was not
      spike       (error)  `patience` rows later the loss stands where one jump has put it
      diverged    (error)  the same after a climb, or while it swings
    Short logs end sooner: `finish` says what an open episode is by what there is.
    Losses that are missing, non-finite, zero or negative are not judged and change nothing.
    """

    RENEW, RENEW_NOISE, CALM, HISTORY = 8, 32, 3, 12
    YOUNG = 64
    LEVEL, NOISE = 32, 128

    def __init__(self, *, logging_steps: int = 1, floor: float = 0.1, share: float = 0.05) -> None:
        if logging_steps < 1 or floor < 0 or share < 0:
            raise ValueError("logging_steps must be at least 1, floor and share not negative")
        self.most_floor, self.share = floor, share
        self.patience = 30 if logging_steps < 5 else 15 if logging_steps < 20 else 10
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self.values: deque[float] = deque(maxlen=self.NOISE + 1)
        self.above: deque[float] = deque(maxlen=self.NOISE)  # y - m of accepted rows
        self.off: deque[float] = deque(maxlen=self.NOISE)  # y - median of 32
        self.last_five: deque[float] = deque(maxlen=5)
        self.accepted, self.floor = 0, self.most_floor
        self.level = self.middle = self.noise = self.spread = self.reach = self.fast = 0.0
        self.cusum, self.rises_from = 0.0, None
        self._close()

    def _close(self) -> None:
        self.start: int | None = None
        self.rows: list[float] = []  # y of the episode, the newest `patience`
        self._first: list[float] = []
        self.count = self.calm = self.up = 0
        self.peak, self.last_up, self.told, self._mild = -math.inf, 0, "", False

    @property
    def is_open(self) -> bool:
        return self.start is not None

    @property
    def back_below(self) -> float:
        """A row this much above the level is back."""
        return max(math.log(1.15), 2.5 * self.spread)

    def update(self, step: int, loss: float | None) -> Finding | None:
        """Takes the loss of one logged row."""
        loss = as_number(loss)
        if loss is None or not math.isfinite(loss) or loss <= 0:
            return None
        y = math.log(loss)
        self.last_five.append(y)
        if self.start is not None:
            return self._go_on(step, y)
        if self.accepted < self.HISTORY:
            self.accept(y)
            return None
        above = y - self.level
        self.cusum = max(0.0, self.cusum + min(above / self.spread, 4.0) - 0.75)
        if self.cusum == 0.0:
            self.rises_from = None
        elif self.rises_from is None:
            self.rises_from = step
        way = self.opens(y, above)
        if not way:
            self.accept(y)
            return None
        return self._open(step, y, way)

    def opens(self, y: float, above: float) -> str:
        """ "fast", "slow", "mild" or "": does this row open an episode?"""
        if above > self.fast and math.exp(y) - math.exp(self.level) > self.floor:
            return "fast"
        if self.cusum < 8.0:
            return ""
        middle = median(self.last_five) - self.level
        rise = math.exp(self.level + middle) - math.exp(self.level)
        if rise > self.floor and middle > math.log(1.15):
            return "slow"
        return "mild" if middle > max(math.log(2.0), 5 * self.noise) else ""

    def accept(self, y: float) -> None:
        """Takes a row into the level."""
        if self.accepted >= self.HISTORY:
            self.above.append(y - self.level)
            self.off.append(y - self.middle)
        self.values.append(y)
        self.accepted += 1
        if self.accepted == self.HISTORY:
            self.floor = min(self.most_floor, self.share * math.exp(median(list(self.values)[:5])))
        young = self.accepted < self.YOUNG
        if young or self.accepted % self.RENEW == 0:
            self.renew(noise=young or self.accepted % self.RENEW_NOISE == 0)

    def renew(self, noise: bool) -> None:
        """The level from the accepted rows; with `noise` also noise and reach."""
        if noise:
            self._renew_noise()
        values = list(self.values)[-self.LEVEL :]
        self.middle = median(values)
        self.level = min(self.middle, median(values[-8:]) + 0.5 * self.noise)

    def _renew_noise(self) -> None:
        """Noise and reach from the accepted rows."""
        values = list(self.values)
        steps = [b - a for a, b in pairwise(values)]
        if len(steps) >= 2:
            middle = median(steps)
            mad = median(abs(v - middle) for v in steps)
            self.noise = max(_MAD_TO_SIGMA * mad / math.sqrt(2), 0.03)
            self.spread = self.noise
            if len(self.off) >= self.LEVEL:
                center = median(self.off)
                wide = _MAD_TO_SIGMA * median(abs(v - center) for v in self.off)
                self.spread = max(self.noise, min(wide, 2 * self.noise))
        else:
            self.noise = self.spread = 0.03
        self.reach = max(self.above, default=0.0)
        self.fast = max(math.log(1.5), 6 * self.noise, 1.5 * self.reach)

    def _open(self, step: int, y: float, way: str) -> Finding:
        self.start = step if way == "fast" else (self.rises_from or step)
        self._mild = way == "mild"
        self.rows, self.count = ([y] if way == "fast" else list(self.last_five)), 0
        self.up = len(self.rows)
        self._first = list(self.rows)
        self.peak, self.last_up = max(self.rows), step
        self.cusum, self.rises_from, self.told = 0.0, None, "spike"
        size = math.exp(self.peak - self.level)
        text = (
            f"The loss is up since step {self.start}: {math.exp(self.peak):.4g}, {size:.3g} times its usual "
            f"{math.exp(self.level):.4g}. Keep the checkpoint before it and watch whether it comes back."
        )
        return self._finding("spike", "warn", step, text, "keep", None, 0.6 if self._mild else 0.8)

    def _go_on(self, step: int, y: float) -> Finding | None:
        self.rows = [*self.rows[1 - self.patience :], y]
        self._first = [*self._first, y] if len(self._first) < self.patience else self._first
        self.count += 1
        self.peak = max(self.peak, y)
        if y - self.level > self.back_below:
            self.last_up, self.calm, self.up = step, 0, self.up + 1
        else:
            self.calm += 1
        if self.calm >= self.CALM:
            return self._over(step)
        if self.count >= self.patience and self.told == "spike" and self._stays():
            return self._stayed(step, 0.9)
        if self.count >= 4 * self.patience and self.told == "spike":
            return self._over(step)  # neither back nor far up: this is the level now
        return None

    def _stays(self) -> bool:
        half = self.rows[-max(3, len(self.rows) // 2) :]
        now = median(half) - self.level
        if self._mild or math.exp(self.level + now) - math.exp(self.level) <= self.floor:
            return False
        return now > max(math.log(1.2), 3 * self.noise) and now > 0.5 * (self.peak - self.level)

    def _stayed(self, step: int, confidence: float) -> Finding:
        half = self.rows[-max(3, len(self.rows) // 2) :]
        now = median(half)
        rows_up = next((i for i, y in enumerate(self._first) if y - self.level > 0.7 * (now - self.level)), 99)
        swing = _MAD_TO_SIGMA * median(abs(y - now) for y in half)
        jump = rows_up <= 1 and swing <= max(0.15, 2 * self.noise)
        self.told = "jump" if jump else "diverged"
        what = "jumped in one step" if jump else "climbed"
        text = (
            f"The loss {what} at step {self.start} and has not come back: {math.exp(now):.4g}, "
            f"{math.exp(now - self.level):.3g} times the {math.exp(self.level):.4g} before (highest "
            f"{math.exp(self.peak):.4g}). Stop it, go back to the last checkpoint before that step, halve the rate."
        )
        return self._finding("spike" if jump else "diverged", "error", step, text, "kill", None, confidence)

    def _over(self, step: int) -> Finding:
        now, until = median(self.rows[-self.CALM :]), self.last_up
        text = (
            f"The loss rose at step {self.start} to {math.exp(self.peak):.4g} ({math.exp(self.peak - self.level):.3g} "
            f"times its usual {math.exp(self.level):.4g}) and is back at {math.exp(now):.4g} after step {until}. "
            "Nothing to stop: go on and watch."
        )
        finding = self._finding("spike_over", "info", step, text, "keep", until, 0.6 if self._mild else 0.8)
        rows, self.last_five = self.rows, deque(self.rows[-5:], maxlen=5)
        self._close()
        for y in rows[-self.CALM :]:
            self.accept(y)
        return finding

    def finish(self, step: int) -> Finding | None:
        """The log ends here: what is an open episode? Fewer rows than `patience` make it less sure."""
        if self.start is None or self.told != "spike" or len(self.rows) < 4 or self.calm:
            return None
        return self._stayed(step, min(0.8, 0.5 + 0.02 * self.count)) if self._stays() else None

    def _finding(self, name, level, step, text, action, until, confidence) -> Finding:
        evidence = {
            "since": self.start,
            "peak": plain(math.exp(self.peak)),
            "usual": plain(math.exp(self.level)),
            "ratio": plain(math.exp(self.peak - self.level), 4),
            "noise": plain(self.noise, 3),
            "rows": max(1, self.count),
            "rows_up": self.up,
            "recovered": name == "spike_over",
            "mild": self._mild,
        }
        return Finding(name, level, step, text, evidence, action, {}, _LIMITS, until, confidence)
