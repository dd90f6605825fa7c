"""Training that has become slower and stays slower for a while."""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "Wall time per step: longer samples, a busier machine and a slower disk look the same in it. A pause of one row "
    "(evaluation, saving, compilation) is left out, because the median of eight rows is judged."
)


class ThroughputDropDetector:
    """Finds eight rows whose median step time is `ratio` times that of the rows before.

    Usual time: median of the last 8 accepted blocks of 8 rows. A block is slow when its median is at least `ratio`
    times the usual time and above it by more than the clock's resolution (`resolution` seconds per row, over the steps
    of one row), with three quarters of its rows slow. Slow blocks are no part of the usual time. Reported once,
    when the slow rows took 10 s together (less is nothing to act on, and a busy machine is enough to make it); two
    blocks in a row that are not slow close it with the info "throughput_drop_over" and the last step that was slow.
    After `most` slow blocks the new time is the usual one.

    What makes training slower still while it is slow is an episode of its own: it begins where the time that is waited
    (`waited` of `update`) alone grows by as much as makes a slow row and to `ratio` times what it was, in three
    quarters of the rows of a slow block. The one before it ends there.
    """

    BLOCK, BLOCKS, LEAST, LEAST_S = 8, 8, 3, 10.0

    def __init__(self, *, ratio: float = 1.5, steps_per_row: int = 1, resolution: float = 0.0, most: int = 100) -> None:
        if ratio <= 1.2 or steps_per_row < 1 or resolution < 0 or most < 1:
            raise ValueError("wanted ratio > 1.2, steps_per_row >= 1, resolution >= 0 and most >= 1")
        self.ratio, self.most = ratio, most
        self.blur, self._steps_per_row = 2.0 * resolution / steps_per_row, steps_per_row
        self.restart()

    def restart(self) -> None:
        """Forgets all: another start of training, perhaps on another machine."""
        self.block: list[tuple[int, float, float | None]] = []
        self.usual: deque[float] = deque(maxlen=self.BLOCKS)
        self.since: int | None = None
        self._slow: list[float] = []
        self._waited: float | None = None
        self._last_slow = self._better = 0
        self._told, self._spent = False, 0.0

    def update(
        self, step: int, seconds: float | None, pause: bool = False, waited: float | None = None
    ) -> Finding | None:
        """Takes one logged row.

        Args:
            seconds: per step.
            pause: an evaluation or a checkpoint is known to be in it.
            waited: the part of `seconds` that went to something else than computing; None where it is not known.
        """
        seconds = as_number(seconds)
        if seconds is None or not math.isfinite(seconds) or seconds < 0 or pause:
            return None
        self.block.append((step, seconds, waited))
        return self.judge() if len(self.block) == self.BLOCK else None

    def judge(self) -> Finding | None:
        block, self.block = self.block, []
        now = median(seconds for _, seconds, _ in block)
        if len(self.usual) < self.LEAST:
            self.usual.append(now)
            return None
        usual = median(self.usual)
        bar = max(self.ratio * usual, usual + self.blur)
        if now >= bar and self._most(seconds >= bar for _, seconds, _ in block):
            return self._is_slow(block, now, usual, bar)
        if self.since is None:
            self.usual.append(now)
            return None
        self._better += 1
        return self._is_over(block, usual, now) if self._better >= 2 else None

    def _is_slow(self, block, now: float, usual: float, bar: float) -> Finding | None:
        grown = self._where_waiting_grew(block, usual, bar)
        if grown is not None:
            self._last_slow = max((step for step, _, _ in block if step < grown), default=self._last_slow)
        ended = self._is_over(block, usual, now) if grown is not None and self._told else None
        if self.since is None or grown is not None:
            self.since = grown if grown is not None else next(step for step, seconds, _ in block if seconds >= bar)
            self._slow, self._told, self._spent, self._waited = [], False, 0.0, _waited(block)
        self._slow.append(now)
        self._spent += self._steps_per_row * sum(seconds for _, seconds, _ in block)
        self._better = 0
        self._last_slow = block[-1][0]
        if len(self._slow) > self.most:
            self.usual.extend(self._slow[-self.LEAST :])
        if ended is not None or self._told or self._spent < self.LEAST_S:
            return ended
        self._told = True
        text = (
            f"Training is slower since step {self.since}: {now:.3g} s per step, {now / usual:.2g} times the usual "
            f"{usual:.3g} s. Look what else runs on the machine, at the clocks of the card and at the data loader."
        )
        return self._finding("throughput_drop", "warn", block[-1][0], text, usual, None)

    def _where_waiting_grew(self, block, usual: float, bar: float) -> int | None:
        """The first step of an episode within the open one; None where there is none."""
        if self.since is None or self._waited is None or _waited(block) is None:
            return None
        grown = max(self._waited + bar - usual, self.ratio * self._waited)
        if not self._most(waited >= grown for _, _, waited in block):
            return None
        return next(step for step, _, waited in block if waited >= grown)

    def _most(self, rows: Iterable[bool]) -> bool:
        return sum(rows) >= 0.75 * self.BLOCK

    def _is_over(self, block, usual: float, now: float) -> Finding:
        until, slow = self._last_slow, median(self._slow)
        text = (
            f"Training was slower from step {self.since} to {until}: {slow:.3g} s per step, {slow / usual:.2g} times "
            f"the usual {usual:.3g} s; now {now:.3g} s. Look what else ran on the machine then."
        )
        finding = self._finding("throughput_drop_over", "info", block[-1][0], text, usual, until)
        self.since, self._slow = None, []
        return finding

    def _finding(self, name: str, level: str, step: int, text: str, usual: float, until: int | None) -> Finding:
        slow = median(self._slow)
        evidence = {
            "since": self.since,
            "seconds_per_step": plain(slow),
            "usual": plain(usual),
            "ratio": plain(slow / usual, 4) if usual else None,
        }
        return Finding(name, level, step, text, evidence, "keep", {}, _LIMITS, until, 0.8)


def _waited(block: list[tuple[int, float, float | None]]) -> float | None:
    """Median of what the rows of a block waited; None where one of them does not say it."""
    waited = [one for _, _, one in block]
    return None if None in waited else median(waited)
