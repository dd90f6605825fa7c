"""Rows in flight: from the values of one optimizer step to one finished row, in order, at most two steps late."""

import time
from collections import deque
from collections.abc import Callable

from .arrivals import HostCopy
from .exchange import Exchange, Ranks

#: A row is forced out when it is this many steps old. The device then still has work queued, so it does not wait.
MAX_LAG = 2


class Row:
    """The values of one optimizer step.

    Attributes:
        step: the Trainer's global step.
        time: Unix seconds at the end of the step.
        values: column -> number.
        facts: what belongs to the step and is no column (per-parameter norms, the longest sample ...): for callbacks
            of this rank, not written.
        per_rank: column -> its value on each rank, None where a rank has none; empty with one process.
    """

    def __init__(self, step: int | None = None, values: dict[str, float] | None = None):
        self.step = step
        self.time = 0.0
        self.values: dict[str, float] = values or {}
        self.facts: dict[str, object] = {}
        self.per_rank: dict[str, list[float | None]] = {}
        self._copies: deque[tuple[HostCopy, Callable]] = deque()
        self.exchange: Exchange | None = None

    def defer(self, tensors: list, finish: Callable, copier: Callable = HostCopy) -> None:
        """Call `finish(row, *values)` with the tensors' values once they are on the host: on CPU at once."""
        copy = copier(tensors)
        if copy.ready() and not self._copies:
            finish(self, *copy.values())
        else:
            self._copies.append((copy, finish))

    def harvest(self, force: bool) -> bool:
        """Take in what has arrived; with `force` wait for it. True when nothing is missing."""
        while self._copies:
            copy, finish = self._copies[0]
            if force:
                copy.wait()
            elif not copy.ready():
                return False
            self._copies.popleft()
            finish(self, *copy.values())
        return True


class Pipeline:
    """The open row and those still waiting for device values or for other ranks.

    Args:
        ranks: the exchange between processes, None for one process.
        complete: called with every finished row, in order of steps, on every rank.
    """

    def __init__(self, ranks: Ranks | None, complete: Callable[[Row], None]):
        self.ranks = ranks
        self.open = Row()
        self._complete = complete
        self._waiting: deque[Row] = deque()

    def close_step(self, step: int) -> None:
        """The optimizer step is over: its row goes on its way and a new one is opened."""
        row, self.open = self.open, Row()
        row.step, row.time = step, time.time()
        self._waiting.append(row)

    def advance(self, step: int, flush: bool = False) -> None:
        """Move the rows on.

        Args:
            step: the step that has just ended; rows `MAX_LAG` older are waited for.
            flush: wait for this rank's own device values too (the Trainer waits for the device anyway when it logs).
        """
        for row in self._waiting:  # device -> host -> exchange, oldest first, on every rank in the same order
            if row.exchange is None:
                if not row.harvest(force=flush or step - row.step >= MAX_LAG):
                    break
                if self.ranks is not None:
                    row.exchange = self.ranks.start(row.values)
        while self._waiting:
            row = self._waiting[0]
            if not row.harvest(force=False):
                return
            if row.exchange is not None:
                if step - row.step >= MAX_LAG:
                    row.exchange.wait()
                elif not row.exchange.ready():
                    return
                row.values, row.per_rank = row.exchange.result(), row.exchange.per_rank()
            self._waiting.popleft()
            self._complete(row)

    def drain(self, step: int) -> None:
        """Training is over on every rank: finish every row."""
        self.advance(step + MAX_LAG, flush=True)

    def rescue(self) -> None:
        """Training is breaking off: finish what can be finished with this rank's own values, waiting for nobody."""
        self.ranks = None
        for row in self._waiting:
            if row.harvest(force=False):
                if row.exchange is not None and row.exchange.ready():
                    row.values, row.per_rank = row.exchange.result(), row.exchange.per_rank()
                self._complete(row)
        self._waiting.clear()
