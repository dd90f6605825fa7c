"""The places where a run was resumed: the rows before, the rows after, and the steps that were made twice.

They are taken while the log is put in order: a later resume that falls back further may take the place of the rows.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .names import EPOCH, LOSS, LR, NORM, STEP

if TYPE_CHECKING:
    from .table import Table

SCALE = "train/lr_scale"
#: what is kept of a row
COLUMNS = (LOSS, LR, NORM, EPOCH)
#: rows with something measured that are kept before a resume, and after it
BEFORE, AFTER = 40, 100


@dataclass
class Resumed:
    """One resume. A row is a mapping with `step` and those of `COLUMNS` that it has; the rate is the schedule's own.

    Attributes:
        before: the last rows of the steps before it that count, oldest first.
        after: its first rows.
        again: the rows that an earlier start had of the steps that it made once more.
        segment: which start of training it is, where the log says so (our record).
        run: how many restarts (other runs in the same log) stand before it.
    """

    before: list[dict] = field(default_factory=list)
    after: list[dict] = field(default_factory=list)
    again: list[dict] = field(default_factory=list)
    segment: int | None = None
    run: int = 0

    @property
    def step(self) -> int:
        """The first step after the resume."""
        return self.after[0]["step"]

    @property
    def row_steps(self) -> int:
        """Optimizer steps of one row. Its loss is their mean; that of the first row after a resume may be of fewer."""
        if self.segment is not None:  # our record has a row for each step
            return 1
        steps = [row["step"] for row in (self.before[-2:] if len(self.before) > 1 else self.after[:2])]
        return max(1, steps[1] - steps[0]) if len(steps) == 2 else 1


@dataclass
class Begun:
    """Where a start of training stands in a table: its first row, and the rows before it and those that it replaces."""

    row: int
    run: int
    before: array
    gone: array
    is_resume: bool


def resumes_of(table: "Table", begun: list[Begun], train: bytearray) -> list[Resumed]:
    """The resumes of a log whose rows are still in the order of the file."""
    found = []
    for number, one in enumerate(begun):
        if not one.is_resume:
            continue
        end = begun[number + 1].row if number + 1 < len(begun) else table.rows
        after = _rising(table, train, range(one.row, end))
        if not after:
            continue
        steps = {row["step"] for row in after}
        again = [row for row in _rows(table, train, one.gone) if row["step"] in steps]
        segments = table.columns.get("segment")
        segment = segments[one.row] if segments is not None else None
        found.append(
            Resumed(_rows(table, train, one.before), after, again, None if segment is None else int(segment), one.run)
        )
    return found


def plain_row(step: int, values: Mapping[str, object]) -> dict:
    """A row of our record, or of the Trainer's, as `Resumed` has it."""
    row: dict = {"step": step}
    for name in COLUMNS:
        value = values.get(name)
        if isinstance(value, (int, float)):
            row[name] = float(value)
    if LR in row:
        row[LR] = planned_rate(row[LR], values.get(SCALE))
    return row


def planned_rate(rate: float, scale: object) -> float:
    """The learning rate that the schedule alone would have made, without the factor of `control`."""
    return rate / scale if isinstance(scale, (int, float)) and scale else rate


def _rows(table: "Table", train: bytearray, places: Iterable[int]) -> list[dict]:
    found = []
    for place in places:
        if train[place]:
            values = {name: table.columns[name][place] for name in (*COLUMNS, SCALE) if name in table.columns}
            found.append(plain_row(int(table.columns[STEP].values[place]), values))
    return found


def _rising(table: "Table", train: bytearray, places: range) -> list[dict]:
    """The first rows of a start; a row that stands twice, or behind later ones, is left out."""
    kept: list[int] = []
    step = table.columns[STEP].values
    for place in places:
        if train[place] and (not kept or step[place] > step[kept[-1]]):
            kept.append(place)
            if len(kept) == AFTER:
                break
    return _rows(table, train, kept)
