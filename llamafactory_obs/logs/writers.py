"""Two processes that write to one log at the same time: the rows of one of them are kept, curves are never mixed."""

from collections.abc import Sequence
from itertools import compress, islice
from operator import ge, sub

from .names import ELAPSED, EPOCH, LOSS, LR, STEP, TOTAL
from .scan import stride, there
from .table import Table, trained

MOST = 16  # writers; beyond that nothing is known about the order
TWICE = 0.3  # share of the rows that repeat the step before with another loss
_FOLLOWED = (STEP, EPOCH, LR, ELAPSED, TOTAL)


def one_writer(table: Table) -> tuple[Sequence[int], str | None]:
    """The rows of the writer with the most of them, and a note; all rows where only one has written."""
    train = trained(table)
    if not _interleaved(table, train):
        return range(table.rows), None
    chains: list[list[int]] = []
    for row in range(table.rows):
        at = _writer(table, chains, row, bool(train[row]))
        if at is None and len(chains) == MOST:
            return range(
                table.rows
            ), "several processes have written to this log, in an order that cannot be told apart"
        if at is None:
            chains.append([row])
        else:
            chains[at].append(row)
    kept = max(chains, key=len)
    left = table.rows - len(kept)
    return (
        kept,
        f"{len(chains)} processes have written to this log at the same time: {left} rows of the others left out",
    )


def _interleaved(table: Table, train: bytearray) -> bool:
    """A resume goes back and then on from there. Where others write in between, the step also leaps ahead again."""
    rows, steps = there(table.columns[STEP], train)
    back = list(compress(range(1, len(steps)), map(ge, steps, islice(steps, 1, None))))
    if len(back) < 3:
        return False
    twice = [at for at in back if steps[at] == steps[at - 1] > steps[0]]
    falls = sum(steps[at] < steps[at - 1] for at in back)
    usual = 1.5 * stride(steps)
    leaps = sum(gap > usual for gap in map(sub, islice(steps, 1, None), steps))
    if falls >= 3 and leaps * 2 >= falls:
        return True
    loss = table.columns.get(LOSS)
    differ = sum(loss[rows[at]] != loss[rows[at - 1]] for at in twice) if loss is not None else 0
    return differ >= max(3, TWICE * len(steps))


def _writer(table: Table, chains: list[list[int]], row: int, is_train: bool) -> int | None:
    """The writer whose rows this one continues best, None for a new one."""
    step = table.columns[STEP].values
    open_to = [at for at, chain in enumerate(chains) if step[chain[-1]] < step[row] + (not is_train)]
    if not open_to:
        return None
    if not is_train:
        return max(open_to, key=lambda at: (step[chains[at][-1]] == step[row], chains[at][-1]))
    return min(open_to, key=lambda at: (round(_misfit(table, chains[at], row), 3), chains[at][-1]))


def _misfit(table: Table, chain: list[int], row: int) -> float:
    """How far the row's place (step, epoch, rate, time, total) is from where the writer would be next."""
    misfit = 0.0
    for name in _FOLLOWED:
        column = table.columns.get(name)
        if column is None or not (column.present[row] and column.present[chain[-1]]):
            continue
        last, value = column.values[chain[-1]], column.values[row]
        before = column.values[chain[-2]] if len(chain) > 1 and column.present[chain[-2]] else last
        expected = 2 * last - before
        size = abs(expected - last) or abs(last) * 0.01 or 1.0
        misfit += min(abs(value - expected) / size, 100.0)
    return misfit
