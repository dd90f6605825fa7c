"""Does the curve go on where training was resumed?"""

import math
from collections import deque
from itertools import pairwise
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_MAD_TO_SIGMA = 1.4826
_LIMITS = (
    "It compares the rows after the resume with those before it. Other data from that step on (a new data set, a "
    "border of an epoch) shifts the level as well."
)


class ResumeGapDetector:
    """Compares `ROWS` rows before a resume with `ROWS` rows after it.

    Level: the medians of ln(loss); a gap is a rise of more than 4 standard errors (noise from the differences of
    neighbours, both sides pooled; standard error of a median 1.25 s / sqrt(n)) and of more than 5 % and 0.02 nats.
    A rise whose last five rows are back within 2 standard errors (or within a third of the first) has faded: info.
    Rate: a change over the border of more than 10 % of the larger rate and of more than 5 times the change of the rows
    before, as in LrScheduleDetector. Epoch: it falls by more than one row's worth. Norm: its median by more than 2
    times. The rate or the epoch alone are a gap too: they prove that the schedule or the data order was not restored.
    The norm alone is not.
    A first judgement comes after `EARLY` rows if it is clear by then, the last after `ROWS` rows.
    """

    ROWS, EARLY = 20, 10

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._rows: deque[tuple[int, float | None, float | None, float | None, float | None]] = deque(maxlen=self.ROWS)
        self._before: list | None = None
        self._after: list = []
        self._facts: dict = {}
        self._said = False

    @property
    def is_open(self) -> bool:
        return self._before is not None

    def resume(self, facts: dict | None = None) -> None:
        """The next row is the first of another start of training; `facts` go into the evidence."""
        self._before, self._after, self._facts, self._said = list(self._rows), [], dict(facts or {}), False
        self._rows.clear()

    def update(
        self, step: int, loss: float | None, lr: float | None, norm: float | None, epoch: float | None
    ) -> Finding | None:
        """Takes one logged row."""
        loss, lr, norm, epoch = as_number(loss), as_number(lr), as_number(norm), as_number(epoch)
        loss = math.log(loss) if loss is not None and math.isfinite(loss) and loss > 0 else None
        norm = norm if norm is not None and math.isfinite(norm) and norm > 0 else None
        row = (step, loss, lr, norm, epoch)
        self._rows.append(row)
        if self._before is None:
            return None
        self._after.append(row)
        if len(self._after) >= self.ROWS:
            return self._close(step)
        if len(self._after) == self.EARLY and (found := self._judge(step, final=False)):
            self._said = True
            return found
        return None

    def finish(self, step: int) -> Finding | None:
        """The log ends here."""
        return self._close(step) if self._before is not None and self._after else None

    def _close(self, step: int) -> Finding | None:
        found = self._judge(step, final=True)
        if found is None and self._said:
            text = f"The rows after the resume at step {self._after[0][0]} are in line with those before it after all."
            found = Finding("resume_gap_over", "info", step, text, {"since": self._after[0][0]}, "keep", {}, _LIMITS)
        self._before = None
        return found

    def _judge(self, step: int, final: bool) -> Finding | None:
        evidence: dict = {"since": self._after[0][0]}
        gap = self._level(evidence)
        reasons = [why for why in (self._rate(evidence), self._epoch(evidence)) if why]
        faded = bool(evidence.get("faded"))
        if gap:
            reasons.insert(0, gap)
        if not reasons or (not final and faded):
            return None
        self._norm(evidence)
        evidence |= {key: value for key, value in self._facts.items() if key not in evidence}
        at = evidence["since"]
        only_faded = faded and len(reasons) == 1
        text = f"After the resume at step {at} the curve does not continue: {'; '.join(reasons)}. "
        if only_faded:
            text += "It has faded since: go on. A missing optimizer state looks like that (save_only_model: false)."
        else:
            text += (
                "Check what was restored: optimizer.pt, scheduler.pt and rng_state in the checkpoint, the same data, "
                "seed and batch size. Resume again from a full checkpoint if one is there."
            )
        suggest = {"save_only_model": False}
        sure = 0.9 if len(reasons) > 1 or not gap else 0.75
        until = self._after[-1][0] if only_faded else None
        level = "info" if only_faded else "warn"
        return Finding("resume_gap", level, step, text, evidence, "keep", suggest, _LIMITS, until, sure)

    def _level(self, evidence: dict) -> str:
        old = [row[1] for row in self._before if row[1] is not None]
        new = [row[1] for row in self._after if row[1] is not None]
        if len(old) < 5 or len(new) < 5:
            return ""
        noise = max(self._noise(old, new), 0.01)
        error = 1.25 * noise * math.sqrt(1 / len(old) + 1 / len(new))
        first, rise = median(new[: max(5, len(new) // 2)]) - median(old), median(new) - median(old)
        last = median(new[-5:]) - median(old)
        rise = max(first, rise)
        usual, now = math.exp(median(old)), math.exp(median(old) + rise)
        evidence |= {"loss_before": plain(usual, 4), "loss_after": plain(now, 4), "noise": plain(noise, 3)}
        evidence["standard_errors"] = plain(rise / error, 3)
        if rise <= 4 * error or rise <= 0.05 or now - usual <= 0.02:
            return ""
        evidence["faded"] = last <= max(2 * error, rise / 3)
        return f"the loss is {now:.4g} after {usual:.4g} ({rise / error:.3g} standard errors)"

    @staticmethod
    def _noise(old: list[float], new: list[float]) -> float:
        steps = [b - a for part in (old, new) for a, b in pairwise(part)]
        return _MAD_TO_SIGMA * median(abs(v) for v in steps) / math.sqrt(2)

    def _rate(self, evidence: dict) -> str:
        old = [row[2] for row in self._before if row[2] is not None]
        new = [row[2] for row in self._after if row[2] is not None]
        if len(old) < 3 or not new:
            return ""
        change, last = new[0] - old[-1], old[-1] - old[-2]
        evidence |= {"lr_before": plain(old[-1]), "lr_after": plain(new[0])}
        if abs(change) <= 0.1 * max(new[0], old[-1]) or abs(change) <= 5 * abs(last):
            return ""
        evidence["lr_restarted"] = True
        return f"the learning rate is {new[0]:.3g} after {old[-1]:.3g} (the schedule was not restored)"

    def _epoch(self, evidence: dict) -> str:
        old = [row[4] for row in self._before if row[4] is not None]
        new = [row[4] for row in self._after if row[4] is not None]
        if len(old) < 2 or not new:
            return ""
        step_before, step_now = self._before[-1][0], self._after[0][0]
        per_row = abs(old[-1] - old[-2])
        if new[0] >= old[-1] - 1.5 * per_row - 1e-9 or step_now < step_before:
            return ""
        evidence |= {"epoch_before": plain(old[-1]), "epoch_after": plain(new[0])}
        return f"the epoch falls from {old[-1]:.4g} to {new[0]:.4g} while the step goes on (other data or batch size)"

    def _norm(self, evidence: dict) -> None:
        old = [row[3] for row in self._before if row[3] is not None]
        new = [row[3] for row in self._after if row[3] is not None]
        if old and new:
            evidence |= {"grad_norm_before": plain(median(old), 4), "grad_norm_after": plain(median(new), 4)}
