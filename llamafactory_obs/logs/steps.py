"""A step for every row: rows without one, and steps that begin anew in each epoch."""

from itertools import pairwise

from .curves import Column
from .names import EPOCH, STEP
from .scan import falls, stride
from .table import Table, trained


def give_steps(table: Table, facts: dict) -> list[str]:
    """Fill the column of steps in place. What had to be made up is returned as notes."""
    column = table.columns.get(STEP)
    if column is None:
        return _count(table, facts)
    if 1 not in column.present:
        return _count(table, facts)
    if not all(map(float.is_integer, column.values)):
        return ["the steps are no whole numbers", *_count(table, facts)]
    notes = []
    if missing := column.present.count(0):
        _from_neighbours(column)
        notes.append(f"{missing} rows without a step: taken as that of the row before")
    return notes + _through_epochs(table)


def _count(table: Table, facts: dict) -> list[str]:
    """No row has a step: the training rows are counted, by the stride that the epochs and the total allow."""
    train = trained(table)
    each = _stride(table, train, facts)
    column, count = Column(table.rows), 0
    for row in range(table.rows):
        count += train[row]
        column[row] = float(count * each)
    table.columns[STEP] = column
    return [f"the rows have no step: counted {each} by {each}" if each > 1 else "the rows have no step: counted"]


def _stride(table: Table, train: bytearray, facts: dict) -> int:
    """Steps per row, from the last row's epoch and the run's total; 1 where that is unknown."""
    total, epochs, epoch = facts.get("max_steps"), facts.get("num_train_epochs"), table.columns.get(EPOCH)
    last = train.rfind(1)
    if not (total and epochs and epoch is not None and last >= 0 and epoch[last]):
        return 1
    return max(1, round(total * epoch.values[last] / epochs / train.count(1)))


def _from_neighbours(column: Column) -> None:
    before = column.values[column.present.find(1)]
    for row, present in enumerate(column.present):
        if present:
            before = column.values[row]
        else:
            column[row] = before


def _through_epochs(table: Table) -> list[str]:
    """Steps that begin anew while the epoch goes on are counted through."""
    column, epoch = table.columns[STEP], table.columns.get(EPOCH)
    if epoch is None or not (starts := falls(column, epoch.present)):
        return []
    values, before = column.values, {}
    for row in starts:
        before[row] = epoch.present.rfind(1, 0, row)
    if not all(epoch.values[row] > epoch.values[before[row]] for row in starts):
        return []
    usual = stride(values) or 1.0
    shifts = [values[before[row]] - values[row] + usual for row in starts]
    shift = 0.0
    for (first, end), more in zip(pairwise([*starts, table.rows]), shifts, strict=True):
        shift += more
        for row in range(first, end):
            values[row] += shift
    return ["the steps begin anew in each epoch: counted through"]
