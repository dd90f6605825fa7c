"""Rows as they stand in a log, as columns: names are ours, the order is the file's."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress, groupby, repeat
from operator import itemgetter, ne, sub

from .curves import Column
from .names import ELAPSED, LOSS, LR, NORM, STEP, TOTAL, UNUSED, our_name, rank
from .scan import any_present
from .values import Durations, number, position

LARGEST = 2.0**53  # beyond that a float does not tell one step from the next
_A_FEW = 8  # rows; below this many in a row of one shape, on the average, single numbers are set


class Table:
    """Grows batch by batch; a row costs little more than its numbers.

    Attributes:
        columns: name -> Column, all of the same length.
        keys: every key that had a value other than null, as the log spells it.
        texts: numbers that were written as text.
    """

    def __init__(self):
        self.rows = 0
        self.columns: dict[str, Column] = {}
        self.keys: dict[str, None] = {}
        self.texts = 0
        self._durations = Durations()

    def add(self, batch: list[dict]) -> None:
        """Append rows. Those of one shape (the same keys) are taken together, column by column."""
        at = self.rows
        self.rows += len(batch)
        if not batch or not self._add_alike(batch, at):
            groups = [(shape, list(rows)) for shape, rows in groupby(batch, key=tuple)]
            if len(groups) * _A_FEW < len(batch):
                for shape, rows in groups:
                    self._add(shape, rows, range(at, at + len(rows)))
                    at += len(rows)
            else:
                shapes: dict[tuple, list[int]] = {}
                for place, row in enumerate(batch):
                    shapes.setdefault(tuple(row), []).append(place)
                for shape, places in shapes.items():
                    self._add(shape, [batch[place] for place in places], [at + place for place in places])
        for column in self.columns.values():
            column.grow(self.rows)

    def _add_alike(self, batch: list[dict], at: int) -> bool:
        """The usual case: all rows have the same keys. False where they have not, with nothing done."""
        shape = tuple(batch[0])
        if set(map(len, batch)) != {len(shape)}:
            return False
        try:
            columns = {key: list(map(itemgetter(key), batch)) for key in shape}
        except KeyError:
            return False
        for name, key in _chosen(shape).items():
            self._put(name, key, columns[key], range(at, at + len(batch)))
        return True

    def _add(self, shape: tuple, rows: list[dict], places: Sequence[int]) -> None:
        for name, key in _chosen(shape).items():
            self._put(name, key, list(map(itemgetter(key), rows)), places)

    def _put(self, name: str, key: str, values: Sequence, places: Sequence[int]) -> None:
        try:
            numbers = array("d", values)
        except (TypeError, OverflowError):
            values = self._numbers(name, values, places)
            if all(value is None for value in values):
                return
            numbers = None
            if None not in values:
                numbers = array("d", values)
        self.keys[key] = None
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = Column()
        if numbers is not None and isinstance(places, range) and len(column) <= places.start:
            column.grow(places.start)
            column.values.extend(numbers)
            column.present.extend(b"\x01" * len(numbers))
            return
        column.grow(self.rows)
        for at, value in zip(places, values, strict=True):
            if value is not None:
                column[at] = value

    def _numbers(self, name: str, values: Sequence, places: Sequence[int]) -> list[float | None]:
        if name == ELAPSED:
            return self._durations.of(values)
        if name == STEP:  # "10/438"
            pairs = [position(value) for value in values]
            if any(total is not None for _, total in pairs):
                self._put(TOTAL, TOTAL, [total for _, total in pairs], places)
            return [step for step, _ in pairs]
        found = [number(value) for value in values]
        self.texts += sum(isinstance(value, str) for value, one in zip(values, found, strict=True) if one is not None)
        return found

    def clean(self, names: Iterable[str]) -> None:
        """Leave only numbers of a possible size in these columns: no NaN, no infinity."""
        for name in names:
            column = self.columns.get(name)
            if column is not None and not sum(map(abs, column.values)) < LARGEST:
                for row, value in enumerate(column.values):
                    if not abs(value) < LARGEST:
                        column[row] = None

    def take(self, name: str) -> Column | None:
        """The column, and it is in the table no more."""
        return self.columns.pop(name, None)

    def keep(self, rows: Sequence[int]) -> None:
        """Leave these rows, in this order."""
        if len(rows) == self.rows and (isinstance(rows, range) or _runs(rows) == [(0, self.rows)]):
            return
        runs = _runs(rows)
        for name, column in self.columns.items():
            self.columns[name] = column.taken(runs)
        self.rows = len(rows)


def trained(table: Table) -> bytearray:
    """1 for each row that a training step wrote, 0 for evaluations and the like."""
    return any_present([table.columns[name] for name in (LOSS, LR, NORM) if name in table.columns], table.rows)


def _runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Rows as ranges (first, end) of neighbours."""
    if not len(rows):
        return []
    breaks = list(compress(range(1, len(rows)), map(ne, map(sub, rows[1:], rows), repeat(1))))
    return [(rows[a], rows[b - 1] + 1) for a, b in zip([0, *breaks], [*breaks, len(rows)], strict=True)]


def _chosen(shape: tuple) -> dict[str, str]:
    """Name -> key. Where two keys of a row mean the same, the first in `names` is taken."""
    chosen: dict[str, str] = {}
    for key in shape:
        if isinstance(key, str) and key not in UNUSED:
            name = our_name(key)
            if name not in chosen or rank(key) < rank(chosen[name]):
                chosen[name] = key
    return chosen
