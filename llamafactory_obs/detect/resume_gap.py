"""Does the curve go on where training was resumed? By the rows before the resume and those after it."""

import math
from collections import deque
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from .finding import Finding
from .numbers import as_number, plain

#: rows on each side of a resume that are compared
ROWS = 20
#: of these at least so many with a loss
LEAST = 5
_MAD_TO_SIGMA = 1.4826
#: a change of the rate is a jump: beyond this part of it where it stood still, and beyond this where it moved
_JUMP, _JUMP_MOVING = 0.1, 0.01
LIMITS = (
    "It compares the rows after the resume with those before it. Other data from that step on (a new data set, a "
    "border of an epoch) shifts the level as well."
)


class Row(NamedTuple):
    """One logged row: `loss` and `norm` as they are where positive and finite, else None."""

    step: int
    loss: float | None
    lr: float | None
    norm: float | None
    epoch: float | None


def row(step: int, loss: object, lr: object, norm: object, epoch: object) -> Row:
    """A row of numbers that may be missing, NaN or no numbers at all."""
    return Row(step, _positive(loss), _finite(lr), _positive(norm), _finite(epoch))


class ResumeGapDetector:
    """Compares `ROWS` rows before a resume with `ROWS` rows after it, and says what does not go on, once.

    Level, rate and epoch: see `level_gap`, `rate_gap` and `epoch_gap`. The rate or the epoch alone are a gap too: they
    prove that the schedule or the data order was not restored. The gradient norm alone is not.
    """

    ROWS = ROWS

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._rows: deque[Row] = deque(maxlen=ROWS)
        self._before: list[Row] | None = None
        self._after: list[Row] = []
        self._facts: dict = {}

    @property
    def is_open(self) -> bool:
        return self._before is not None

    def resume(self, facts: dict | None = None) -> None:
        """The next row is the first of another start of training; `facts` go into the evidence."""
        self._before, self._after, self._facts = list(self._rows), [], dict(facts or {})
        self._rows.clear()

    def update(
        self, step: int, loss: float | None, lr: float | None, norm: float | None, epoch: float | None
    ) -> Finding | None:
        """Takes one logged row."""
        taken = row(step, loss, lr, norm, epoch)
        self._rows.append(taken)
        if self._before is None:
            return None
        self._after.append(taken)
        return self._close(step) if len(self._after) >= ROWS else None

    def finish(self, step: int) -> Finding | None:
        """The log ends here."""
        return self._close(step) if self._before is not None and self._after else None

    def _close(self, step: int) -> Finding | None:
        before, after, self._before = self._before, self._after, None
        evidence: dict = {"since": after[0].step}
        gap = level_gap(before, after, evidence)
        reasons = [why for why in (gap, rate_gap(before, after, evidence), epoch_gap(before, after, evidence)) if why]
        if not reasons:
            return None
        norm_levels(before, after, evidence)
        evidence |= {key: value for key, value in self._facts.items() if key not in evidence}
        only_faded = bool(evidence.get("faded")) and len(reasons) == 1
        return finding(step, reasons, evidence, until=after[-1].step if only_faded else None)


def finding(step: int, reasons: list[str], evidence: dict, until: int | None = None) -> Finding:
    """What does not go on, as a finding.

    Args:
        step: where it was seen.
        reasons: what does not go on, each the end of a sentence.
        evidence: with `since`, the first step after the resume.
        until: the last row, where all that was seen is a loss that has come back.
    """
    text = f"After the resume at step {evidence['since']} the curve does not continue: {'; '.join(reasons)}. "
    if until is not None:
        text += "It has faded since: go on. A missing optimizer state looks like that (save_only_model: false)."
    else:
        text += (
            "Check what was restored: optimizer.pt, scheduler.pt and rng_state in the checkpoint, the same data, "
            "seed and batch size. Resume again from a full checkpoint if one is there."
        )
    level = "info" if until is not None else "warn"
    only_level = len(reasons) == 1 and "standard_errors" in evidence and "faded" in evidence
    sure, suggest = 0.75 if only_level else 0.9, {"save_only_model": False}
    return Finding("resume_gap", level, step, text, evidence, "keep", suggest, LIMITS, until, sure)


def level_gap(before: list[Row], after: list[Row], evidence: dict) -> str:
    """A rise of the loss over a resume; "" where there is none, or too few rows.

    The medians of ln(loss): more than 4 standard errors (noise from the differences of neighbours, both sides pooled;
    standard error of a median 1.25 s / sqrt(n)) and more than 5 % and 0.02 nats. A rise whose last five rows are back
    within 2 standard errors (or within a third of the first) is `faded` in the evidence.
    """
    old = [math.log(one.loss) for one in before[-ROWS:] if one.loss is not None]
    new = [math.log(one.loss) for one in after[:ROWS] if one.loss is not None]
    if len(old) < LEAST or len(new) < LEAST:
        return ""
    noise = max(noise_of(old, new), 0.01)
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


def rate_gap(before: list[Row], after: list[Row], evidence: dict) -> str:
    """A learning rate that is not the schedule's next value; "" where it goes on.

    The next value is the last one and its last change once more. A jump is further from it than 5 such changes, and
    than 1 % of the rate; where the rate stood still, than 10 % (the decay may begin just there).
    """
    old = [one for one in before if one.lr is not None]
    new = [one for one in after if one.lr is not None]
    if len(old) < 3 or not new:
        return ""
    last, now = old[-1].lr, new[0].lr
    per_step = (last - old[-2].lr) / max(old[-1].step - old[-2].step, 1)
    steps = max(new[0].step - old[-1].step, 1)
    expected, usual = last + per_step * steps, abs(per_step) * steps
    evidence |= {"lr_before": plain(last), "lr_after": plain(now), "lr_expected": plain(max(expected, 0.0))}
    highest = max(now, last)
    still = usual <= 1e-6 * highest
    if abs(now - expected) <= max(5 * usual, (_JUMP if still else _JUMP_MOVING) * highest):
        return ""
    evidence["lr_restarted"] = True
    return f"the learning rate is {now:.3g} after {last:.3g} (the schedule was not restored)"


def epoch_gap(before: list[Row], after: list[Row], evidence: dict) -> str:
    """A position in the data that does not go on; "" where it does. Logs may round the epoch to two digits."""
    old = [one for one in before if one.epoch is not None]
    new = [one for one in after if one.epoch is not None]
    if len(old) < 2 or not new or new[0].step <= old[-1].step:
        return ""
    last, now = old[-1].epoch, new[0].epoch
    per_step = abs(last - old[-2].epoch) / max(old[-1].step - old[-2].step, 1)
    rounded = all(one.epoch == round(one.epoch, 2) for one in old + new)
    per_row = max(per_step * (new[0].step - old[-1].step), 0.01 if rounded else 0.0)
    fell, jumped = now < last - 0.5 * per_row - 1e-9, now > last + 3.5 * per_row + 1e-9
    if not (fell or jumped):
        return ""
    evidence |= {"epoch_before": plain(last), "epoch_after": plain(now)}
    how = "falls" if fell else "jumps"
    return f"the epoch {how} from {last:.4g} to {now:.4g} while the step goes on (other data or batch size)"


def norm_levels(before: list[Row], after: list[Row], evidence: dict) -> None:
    """The medians of the gradient norm on both sides."""
    old = [one.norm for one in before if one.norm is not None]
    new = [one.norm for one in after if one.norm is not None]
    if old and new:
        evidence |= {"grad_norm_before": plain(median(old), 4), "grad_norm_after": plain(median(new), 4)}


def noise_of(*parts: list[float]) -> float:
    """Standard deviation from row to row, by the differences of neighbours; 0 where there are none."""
    steps = [abs(b - a) for part in parts for a, b in pairwise(part)]
    return _MAD_TO_SIGMA * median(steps) / math.sqrt(2) if steps else 0.0


def _finite(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and math.isfinite(number) else None


def _positive(value: object) -> float | None:
    number = _finite(value)
    return number if number is not None and number > 0 else None
