"""A whole loss curve in a bounded number of blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: mean of |difference of two neighbours| over the standard deviation of one, for normal noise: 2 / sqrt(pi)
_ABS_DIFFERENCE = 2 / math.sqrt(math.pi)


@dataclass(slots=True)
class Block:
    """Sums over the rows of one block; y = ln(loss).

    first, last   steps of its first and its last row
    epoch         of its first row, NaN where it is not logged
    rows, total   number of rows and sum of y
    moves         sum of |y - y of the row before|
    swings        the same of the loss itself, in nats
    rate          largest learning rate, NaN where it is not logged
    """

    first: int
    last: int
    epoch: float
    rows: int
    total: float
    moves: float
    swings: float
    rate: float

    @property
    def level(self) -> float:
        """Mean of y."""
        return self.total / self.rows

    @property
    def noise(self) -> float:
        """Standard deviation of one row's y, from the differences of neighbours (so a trend does not count)."""
        return self.moves / self.rows / _ABS_DIFFERENCE

    @property
    def sigma(self) -> float:
        """The same of one row's loss, in nats."""
        return self.swings / self.rows / _ABS_DIFFERENCE

    def join(self, after: "Block") -> "Block":
        """This block and the one behind it as one."""
        rows, total = self.rows + after.rows, self.total + after.total
        moves, swings = self.moves + after.moves, self.swings + after.swings
        return Block(self.first, after.last, self.epoch, rows, total, moves, swings, _larger(self.rate, after.rate))


def _larger(a: float, b: float) -> float:
    return b if math.isnan(a) or b > a else a


class LossBlocks:
    """The rows of a curve in 64 to 128 blocks of equal size; fewer while there are fewer rows.

    When 128 blocks are full, neighbours are joined in pairs and the size doubles. So memory is bounded, a row costs
    some additions, and what is kept does not depend on whether it came row by row or not.
    """

    MOST = 128

    def __init__(self) -> None:
        self.size = 1
        self.blocks: list[Block] = []
        self.open: Block | None = None
        self.rows = 0
        self.head: list[float] = []  # y of the first five rows
        self._last: float | None = None

    def push(self, step: int, loss: float, epoch: float = math.nan, rate: float = math.nan) -> None:
        """Adds one row."""
        y, last = math.log(loss), loss if self._last is None else self._last
        self._last = loss
        self.rows += 1
        if len(self.head) < 5:
            self.head.append(y)
        move, swing, block = abs(math.log(loss / last)), abs(loss - last), self.open
        if block is None:
            self.add(Block(step, step, epoch, 1, y, move, swing, rate))
            return
        block.last = step
        block.rows += 1
        block.total += y
        block.moves += move
        block.swings += swing
        block.rate = _larger(block.rate, rate)
        if block.rows >= self.size:
            self.add(block)

    def add(self, block: Block) -> None:
        """Takes `block` as the open one, and closes it when it is full."""
        self.open = block
        if block.rows < self.size:
            return
        self.blocks.append(block)
        self.open = None
        if len(self.blocks) == self.MOST:
            b = self.blocks
            self.blocks = [p.join(q) for p, q in zip(b[::2], b[1::2], strict=True)]
            self.size *= 2

    def take(self, size: int, blocks: list[Block], rest: Block | None, losses: Sequence[float]) -> None:
        """Takes a whole curve that was put into blocks elsewhere; `losses` are its rows."""
        self.size, self.blocks, self.open, self.rows = size, blocks, rest, len(losses)
        self._last, self.head = float(losses[-1]), [math.log(loss) for loss in losses[:5]]

    def all(self) -> list[Block]:
        """The full blocks, and the open one where it is at least half full."""
        last = [self.open] if self.open is not None and self.open.rows * 2 >= self.size else []
        return self.blocks + last
