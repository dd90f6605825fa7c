"""Where a column falls, rises, repeats: over a million rows at the speed of the standard library's loops."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import compress, islice
from operator import and_, ge, gt, ne, or_, sub

from .curves import Column


def any_present(columns: Sequence[Column], rows: int) -> bytearray:
    """1 for each row in which one of the columns has a number."""
    together = reduce(or_, (int.from_bytes(column.present, "big") for column in columns), 0)
    return bytearray(together.to_bytes(rows, "big"))


def both(one: bytearray, other: bytearray) -> bytes:
    """1 for each row in which both have 1."""
    return and_(int.from_bytes(one, "big"), int.from_bytes(other, "big")).to_bytes(len(one), "big")


def not_rising(column: Column) -> list[int]:
    """Rows whose value is at most that of the row before. All of them must have one."""
    values = column.values.tolist()
    return list(compress(range(1, len(values)), map(ge, values, islice(values, 1, None))))


def falls(column: Column | None, of: bytearray | None = None, slack: float = 0.0) -> list[int]:
    """Rows whose value is more than `slack` below the one before; rows without one, or not in `of`, do not count."""
    if column is None:
        return []
    rows, values = there(column, of)
    found = compress(range(1, len(values)), map(gt, values, islice(values, 1, None)))
    return [rows[at] for at in found if values[at - 1] - values[at] > slack]


def changes(column: Column | None) -> list[int]:
    """Rows whose value is another than the one before it."""
    if column is None or column.values.count(column.values[0]) == len(column) == column.present.count(1):
        return []
    rows, values = there(column)
    return [rows[at] for at in compress(range(1, len(values)), map(ne, values, islice(values, 1, None)))]


def there(column: Column, of: bytearray | None = None) -> tuple[Sequence[int], list[float]]:
    """Rows that have a value (and are in `of`), and their values."""
    mask = column.present if of is None else both(column.present, of)
    if 0 not in mask:
        return range(len(mask)), column.values.tolist()
    return list(compress(range(len(mask)), mask)), list(compress(column.values, mask))


def stride(steps: Sequence[float]) -> float:
    """The most frequent step from row to row (of two equally frequent ones the smaller), 0 where none rises."""
    gaps = Counter(map(sub, islice(steps, 1, None), steps))
    return -max(((count, -gap) for gap, count in gaps.items() if gap > 0), default=(0, 0))[1]
