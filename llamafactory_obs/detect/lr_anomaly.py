"""A learning rate that does what no schedule does."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = "It judges the logged rate alone. A schedule of one's own may be meant: then this is as intended."


class LrAnomalyDetector:
    """Finds jumps of the logged rate, a warm-up that is no straight line, and a schedule that ends early.

    A row that changes the rate by more than half of its larger value and by more than 8 times the row before it is a
    jump. Not held for one: the first rows (a warm-up of less than a row), a rate of 0 at the start, the restarts of a
    schedule (cosine_with_restarts: from a fifth of the peak or less back to three quarters and more, at even distances
    that divide the planned steps), and what happens where training starts again (that is the resume's matter, see
    ResumeGapDetector).
    Warm-up: until the peak the rises of a linear warm-up are equal; told when the middle one of them, at least 8, is
    beyond 1.5 times the mean either way. (Rows that the fp16 scaler skipped stand still and are left out.)
    End: the rate is 0 for `dead_rows` rows although more than 2 % of the planned steps are still to come.
    Each is reported once, jumps up to `most` times.
    """

    def __init__(self, *, max_steps: int | None = None, dead_rows: int = 10, most: int = 5) -> None:
        self.max_steps, self.dead_rows, self.most = max_steps, dead_rows, most
        self.restart()

    def restart(self) -> None:
        """Forgets all: another start of training, with a schedule that is judged for itself."""
        self.rate: float | None = None
        self.change = 0.0
        self.peak, self.rows, self.zeros = 0.0, 0, 0
        self._rises: list[float] = []
        self._warming = True
        self._said_end = False
        self._jumps = 0
        self._top: int | None = None  # the step at which the warm-up was over
        self._cycle: int | None = None  # steps from restart to restart

    def update(self, step: int, rate: float | None) -> Finding | None:
        """Takes the rate of one logged row."""
        rate = as_number(rate)
        if rate is None or not math.isfinite(rate) or rate < 0:
            return None
        before, last, self.rate = self.rate, self.change, rate
        self.rows += 1
        if before is None:
            self.peak = rate
            return None
        self.change = rate - before
        self.zeros = self.zeros + 1 if rate == 0.0 else 0
        found = self._warm_up(step, before, rate)
        restarts = self._restarts(step, before, rate)
        self.peak = max(self.peak, rate)
        if self.zeros >= self.dead_rows and self.peak > 0:
            found = found or self._end(step)
        if self.jumps(before, rate, last) and not restarts:
            found = self._jump(step, before, rate) or found
        return found

    def jumps(self, before: float, rate: float, last: float) -> bool:
        """Does this row jump? `last`: the change of the row before."""
        change, larger = abs(rate - before), max(rate, before)
        return self.rows > 3 and change > 0.5 * larger and change > 8 * abs(last) and change > 0.05 * self.peak

    def _restarts(self, step: int, before: float, rate: float) -> bool:
        """Is this rise the next cycle of the schedule?"""
        if self._top is None or before > 0.2 * self.peak or not 0.75 <= rate / self.peak <= 1.02:
            return False
        if self._cycle is None:
            cycles = 2.0 if self.max_steps is None else (self.max_steps - self._top) / (step - self._top)
            if cycles < 1.9 or not _is_whole(cycles):
                return False
            self._cycle = step - self._top
            return True
        return _is_whole((step - self._top) / self._cycle)

    @property
    def warming(self) -> bool:
        """Whether the warm-up is still judged."""
        return self._warming

    def skip_to(self, rate: float, change: float, peak: float, rows: int, zeros: int) -> None:
        """Takes rows that are known to be ordinary: the last rate and its change, the highest so far, how many rows it
        has seen, how many zeros stand at their end."""
        self.rate, self.change, self.peak, self.rows, self.zeros = rate, change, peak, rows, zeros

    def _jump(self, step: int, before: float, rate: float) -> Finding | None:
        self._jumps += 1
        if self._jumps > self.most:
            return None
        text = (
            f"The learning rate jumps from {before:.3g} to {rate:.3g} at step {step}. No usual schedule does that: "
            "look for a resume without scheduler.pt, a changed config or a callback that writes the rate."
        )
        return self._finding("lr_anomaly", step, text, what="jump", before=plain(before), lr=plain(rate))

    def _warm_up(self, step: int, before: float, rate: float) -> Finding | None:
        if not self._warming:
            return None
        if rate > before:
            if len(self._rises) < 4096:
                self._rises.append(rate - before)
            return None
        if rate == before and (rate < self.peak or not self._rises):
            return None  # a skipped step, or a rate that has not moved yet
        self._warming, self._top = False, step
        rises, self._rises = self._rises[:-1], []  # the last one may be cut by the peak
        if len(rises) < 8:
            return None
        mean, middle = sum(rises) / len(rises), sorted(rises)[len(rises) // 2]
        if 1 / 1.5 <= middle / mean <= 1.5:
            return None
        text = (
            f"The warm-up to {self.peak:.3g} (step {step}) is no straight line: its middle row rises by {middle:.3g}, "
            f"the mean row by {mean:.3g}. LlamaFactory's schedules warm up linearly; check lr_scheduler_type."
        )
        return self._finding("lr_anomaly", step, text, what="warm-up", middle=plain(middle), mean=plain(mean))

    def _end(self, step: int) -> Finding | None:
        if self._said_end or self.max_steps is None or step > 0.98 * self.max_steps:
            return None
        self._said_end = True
        text = (
            f"The learning rate is 0 at step {step} of {self.max_steps}: the schedule has ended early and nothing is "
            "learnt any more. Stop it; the last checkpoint is the result. Next time let max_steps be the schedule's."
        )
        return self._finding("lr_anomaly", step, text, what="ended early", max_steps=self.max_steps)

    def _finding(self, name: str, step: int, text: str, **evidence) -> Finding:
        action = "keep"
        return Finding(name, "warn", step, text, {"since": step, **evidence}, action, {}, _LIMITS, None, 0.7)


def _is_whole(cycles: float) -> bool:
    """Is it a whole number of cycles, as far as rows of some steps show it?"""
    return abs(cycles - round(cycles)) <= 0.05 + 0.02 * cycles
