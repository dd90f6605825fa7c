"""The learning rate's changes of regime: what a schedule does, and what it does not explain."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = "It says that the rate changed its course, not that the course is right."
#: (course before, course now) -> name and what it means
_TURNS = {
    ("rises", "falls"): ("warm-up ends", "the rate has its peak and falls from here on"),
    ("rises", "stays"): ("warm-up ends", "the rate has its peak and stays there"),
    ("stays", "falls"): ("decay begins", "the rate falls from here on"),
    ("falls", "stays"): ("schedule ends", "the rate stays where it is from here on"),
    ("falls", "rises"): ("rate rises again", "a restart, or a schedule that has run past its end"),
    ("stays", "rises"): ("rate rises", "the rate goes up from here on"),
}


class LrScheduleDetector:
    """Follows the rate of one parameter group and reports each change of its course, not each change of the number.

    The course is `rises`, `stays` or `falls`. A step is a `jump` when it changes the rate by more than `jump` of its
    larger value and by more than 5 times the step before it: a cosine's steps grow by 3, 5/3, 7/5 ... at its start, a
    linear one's do not grow. Where training resumes a change of direction is enough. A jump that the schedule does not
    explain is a warn, everything else an info.
    A step that the GradScaler skipped does not move the schedule: an equal rate after it is no new course.
    After `most` reports nothing more is said (a schedule that is led by a metric may turn at every step).
    """

    def __init__(self, *, jump: float = 0.1, most: int = 50) -> None:
        if not 0 < jump < 1 or most < 1:
            raise ValueError("wanted 0 < jump < 1 and most of at least 1")
        self.jump, self.most = jump, most
        self._rate: float | None = None
        self._change: float | None = None
        self._course: str | None = None
        self._peak = 0.0
        self._outside = self._skipped = False
        self._reports = 0

    def update(
        self,
        step: int,
        rate: float | None,
        *,
        planned: float | None = None,
        skipped: bool = False,
        begins: bool = False,
    ) -> Finding | None:
        """Takes the rate of one update.

        Args:
            planned: the rate that the scheduler has set; None where it is not known.
            skipped: the scaler skipped this update.
            begins: training has begun with this step (also: again, after a resume).
        """
        rate = as_number(rate)
        if rate is None or not math.isfinite(rate):
            return None
        before, held, self._rate = self._rate, self._skipped, rate
        self._skipped, self._peak = skipped, max(self._peak, rate)
        finding = self._judge(step, before, rate, planned, held, begins)
        if finding is None or self._reports >= self.most:
            return None
        self._reports += 1
        return finding

    def rescale(self, factor: float) -> None:
        """The whole schedule was multiplied on purpose: from the next update on it goes on at another height."""
        self._peak *= factor
        self._rate = None if self._rate is None else self._rate * factor
        self._change = None if self._change is None else self._change * factor

    def _judge(self, step, before, rate, planned, held, begins) -> Finding | None:
        outside = planned is not None and not math.isclose(rate, planned, rel_tol=1e-6, abs_tol=1e-18)
        newly_outside, self._outside = outside and not self._outside, outside
        if newly_outside:
            self._change = self._course = None
            text = f"The learning rate {rate:.4g} of step {step} is not the scheduler's ({planned:.4g}): somebody else"
            text += " has set it. Look for a callback or a script that writes to the optimizer's groups."
            return self._report("rate set from outside", "warn", step, text, before, planned=plain(planned))
        if before is None:
            note = " A rate of 0: this update changes nothing." if rate == 0 else ""
            return self._report("first rate", "info", step, f"The learning rate begins at {rate:.4g}.{note}", None)
        if outside:
            return None
        change, last = rate - before, self._change
        same = abs(change) <= 1e-12 * max(rate, before)
        if same and held:
            return None
        course = "stays" if same else "rises" if change > 0 else "falls"
        was, self._course, self._change = self._course, course, change
        if last is not None and abs(change) > self.jump * max(rate, before) and self._leaps(change, last, begins):
            self._course = self._change = None
            if begins:
                text = f"The learning rate jumps from {before:.4g} to {rate:.4g} where training resumes at step {step}:"
                text += " the schedule did not go on (is scheduler.pt in the checkpoint?)."
                return self._report("unexplained jump", "warn", step, text, before)
            text = f"The learning rate jumps from {before:.4g} to {rate:.4g} at step {step}, as the scheduler says."
            return self._report("jump", "info", step, text, before)
        if was is None or (was, course) not in _TURNS:
            return None
        name, meaning = _TURNS[was, course]
        if name == "schedule ends" and rate == 0:
            meaning = "the rate is 0: nothing is learnt any more"
        text = f"Learning rate {rate:.4g} at step {step}, after {before:.4g}: {meaning}."
        return self._report(name, "info", step, text, before)

    @staticmethod
    def _leaps(change: float, last: float, begins: bool) -> bool:
        return abs(change) > 5 * abs(last) or (begins and change * last < 0)

    def _report(self, name: str, level: str, step: int, text: str, before: float | None, **more) -> Finding:
        evidence = {"lr": plain(self._rate), "before": plain(before), "peak": plain(self._peak), **more}
        return Finding(name, level, step, text, evidence, "none", {}, _LIMITS)
