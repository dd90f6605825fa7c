"""Steps in the training loss: at the borders of epochs (memorising), or anywhere else (data that are not shuffled)."""

import math
from collections import deque
from statistics import median

from .finding import Finding
from .loss_blocks import Block
from .numbers import as_number, plain

_LIMITS = "Samples that are seen again are known: a fall at the border of an epoch is no proof of over-fitting."


class EpochStepsDetector:
    """Finds a loss that falls at the borders of epochs: samples seen before are remembered.

    At each border the median of the last `rows` values of ln(loss) is compared with that of the first `rows` after
    it. A step is a fall of more than 5 %, of more than 5 standard errors, and of more than half of what the whole
    epoch before it brought. The info "memorising" comes with the second step, or with the first where `finish` finds
    no more.
    """

    def __init__(self, *, rows: int = 10) -> None:
        if rows < 3:
            raise ValueError("rows must be at least 3")
        self.rows = rows
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._last: deque[float] = deque(maxlen=self.rows)
        self._moves: deque[float] = deque(maxlen=64)
        self._epoch: int | None = None
        self._first: list[float] = []  # of this epoch
        self._before: float | None = None  # the end of the epoch before
        self._begin: float | None = None  # the begin of the epoch before
        self._border = 0
        self.steps: list[tuple[int, float, float]] = []  # step, loss before, loss after
        self._levels: list[float] = []
        self._said = False

    def update(self, step: int, loss: float | None, epoch: float | None) -> Finding | None:
        """Takes one logged row."""
        loss, epoch = as_number(loss), as_number(epoch)
        if loss is None or epoch is None or not math.isfinite(loss + epoch) or loss <= 0:
            return None
        y = math.log(loss)
        number = _number(epoch)
        if self._epoch is not None and number > self._epoch and len(self._last) >= 3:
            self._before = median(self._last)
            self._begin = median(self._first) if len(self._first) >= 3 else None
            self._border, self._first = step, []
            self._levels = [*self._levels[-99:], self._before]
        elif self._last:
            self._moves.append(abs(y - self._last[-1]))
        self._epoch = number if self._epoch is None else max(number, self._epoch)
        self._last.append(y)
        if len(self._first) < self.rows:
            self._first.append(y)
            if len(self._first) == self.rows and self._before is not None:
                return self._compare(step)
        return None

    def finish(self, step: int) -> Finding | None:
        """The log ends here."""
        if self._before is not None and 3 <= len(self._first) < self.rows:
            self._compare(step)
        return self._memorising(step) if self.steps and not self._said else None

    def _compare(self, step: int) -> Finding | None:
        after = median(self._first)
        fall, noise = self._before - after, 1.0483 * median(self._moves) if self._moves else 0.0
        error = max(1.25 * noise * math.sqrt(2 / len(self._first)), 0.005)
        within = 0.0 if self._begin is None else self._begin - self._before
        before, self._before = self._before, None
        if fall <= max(0.05, 5 * error) or fall <= 0.5 * within:
            return None
        self.steps = [*self.steps[-99:], (self._border, math.exp(before), math.exp(after))]
        return self._memorising(step) if len(self.steps) >= 2 and not self._said else None

    def _memorising(self, step: int) -> Finding:
        self._said = True
        falls = ", ".join(f"{before:.3g} to {after:.3g} at step {at}" for at, before, after in self.steps[:4])
        text = (
            f"The loss falls in steps at the borders of epochs ({falls}): samples seen before are remembered. That is "
            "no fault by itself. Let an evaluation decide how many epochs are enough; where there is none, set "
            "eval_steps."
        )
        evidence = {
            "since": self.steps[0][0],
            "borders": [[at, plain(a, 4), plain(b, 4)] for at, a, b in self.steps[:20]],
        }
        return Finding("memorising", "info", step, text, evidence, "keep", {}, _LIMITS, None, 0.8)


def _number(epoch: float) -> int:
    """Which epoch a row belongs to; the row at 2.0 still belongs to the second one. 0 where it is unknown."""
    return math.ceil(epoch - 1e-6) - 1 if epoch > 0 else 0


_STAIRS_LIMITS = (
    "Other explanations of such steps are a change of the data mix that is meant (a curriculum) and a log of several "
    "runs."
)


def stairs(step: int, blocks: list[Block], size: int, borders: list[int]) -> Finding | None:
    """Steps of the level that are not at the borders of epochs, up as well as down: the data are not shuffled.

    A step of the level: the medians of three blocks on either side differ by more than 10 % and by 6 standard errors,
    both sides vary by less than a third of that, and the change takes no more than one block. Gradient descent does not
    do that by itself. It takes one step down and one up, or three down; a step up by more than 2.5 times is a
    divergence and no matter of data. Where no epoch is logged, steps down alone may be the epochs': not told.

    Args:
        step: where the log is.
        blocks, size: of `LossBlocks`.
        borders: steps at which training was started again; epochs are known from the blocks.
    """
    if len(blocks) < 12:
        return None
    noise, known = median(b.noise for b in blocks[1:]), not math.isnan(blocks[-1].epoch)
    found: list[tuple[int, float]] = []
    for i in range(3, len(blocks) - 2):
        left, right = [b.level for b in blocks[i - 3 : i]], [b.level for b in blocks[i : i + 3]]
        change = median(right) - median(left)
        least = max(0.1, 6 * max(noise / math.sqrt(size), 0.005))
        if abs(change) < least or max(max(s) - min(s) for s in (left, right)) > abs(change) / 3:
            continue
        near = any(blocks[i - 1].first <= at <= blocks[i].last for at in borders)
        near = near or _number(blocks[i + 2].epoch) > _number(blocks[i - 3].epoch)
        if (near and change < 0) or (found and i - found[-1][0] < 3):
            continue
        found.append((i, change))
    ups, downs = [c for _, c in found if c > 0], [c for _, c in found if c < 0]
    if max(ups, default=0.0) > math.log(2.5) or not ((ups and downs) or (len(downs) >= 3 and known)):
        return None
    places = [[blocks[i].first, plain(math.exp(c), 3)] for i, c in found[:20]]
    since = places[0][0]
    words = ", ".join(f"x{factor:.2g} at step {at}" for at, factor in places[:4])
    text = (
        f"The loss changes its level in steps that are not at the borders of epochs ({words}): the data are probably "
        "not shuffled. Set disable_shuffling: false (and mix the data sets: mix_strategy: interleave_under)."
    )
    suggest = {"disable_shuffling": False}
    evidence = {"since": since, "steps": places, "noise": plain(noise, 3)}
    return Finding("stairs", "warn", step, text, evidence, "keep", suggest, _STAIRS_LIMITS, None, 0.6)
