"""Where a finding stands in its log: the row where it began, what came before it, and how it went on."""

import math
from array import array
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ...detect import Finding
from ...logs.curves import Break, Curves
from ...record.reader import has_record
from ...record.schema import FOLDER
from .ordinary import Ordinary, middle

PAST = 512
"""Rows that count as the past: as many as a resume shows the detectors again."""
_LOOK_BACK, _LEVEL = 64, 32
_RISE, _Z = 0.1, 4.0
_CALM = 3  # rows on the old level in a row end an excursion
_LATE = 10  # rows by which a detector may be late
#: keys of a finding's evidence that tell where it began
_SINCE = ("since", "onset", "began", "first_step", "from_step")


class Place:
    """A finding within its log.

    Attributes:
        curves, finding: what it was made of.
        row: the row where it began: the first raised loss of the excursion that the finding belongs to (else the first
            raised gradient norm, else the finding's own row).
        last: the last row of it; the log's last one while it goes on.
        series: the column that `row` rests on, None where it is the finding's own step.

    Args:
        series: columns whose excursion may be the finding's, the first that has one counts; empty: its own step.
    """

    def __init__(self, curves: Curves, finding: Finding, series: tuple[str, ...]):
        self.curves, self.finding = curves, finding
        self._follow = series
        self.seen = row_of(curves.steps, finding.step)
        self.row, self.series = self._began()
        self.last = max(self._ended(), self.row)

    # ---- numbers ------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step of `row`."""
        return self.curves.steps[self.row]

    def at(self, name: str, row: int | None = None) -> float | None:
        """A column's value in the row (default: where it began); None where missing."""
        row = self.row if row is None else row
        column = self.curves.columns.get(name)
        return column[row] if column is not None and 0 <= row < len(column) else None

    def values(self, name: str, rows: Iterable[int]) -> list[float]:
        """A column's finite values in these rows."""
        column = self.curves.columns.get(name)
        if column is None:
            return []
        if isinstance(rows, range) and rows.step == 1 and rows.start >= 0:
            there = slice(rows.start, max(rows.stop, rows.start))
            pairs = zip(column.values[there], column.present[there], strict=True)
            return [value for value, present in pairs if present and math.isfinite(value)]
        found = [column[row] for row in rows]
        return [value for value in found if value is not None and math.isfinite(value)]

    def near(self, name: str, before: int = 1, after: int = 1) -> list[float]:
        """A column's values around the beginning, non-finite ones too."""
        column, size = self.curves.columns.get(name), len(self.curves)
        rows = range(max(self.row - before, 0), min(self.row + after + 1, size))
        return [] if column is None else [column[row] for row in rows if column[row] is not None]

    @property
    def before(self) -> range:
        """The rows of the past, up to `PAST`."""
        return range(max(self.row - PAST, 0), self.row)

    @property
    def during(self) -> range:
        return range(self.row, self.last + 1)

    def past(self, name: str) -> Ordinary | None:
        """What the column was before; None where that is too little."""
        return Ordinary.of(self.values(name, self.before))

    # ---- how it went on -----------------------------------------------------------------------------------------

    @cached_property
    def raised(self) -> list[int]:
        """Rows from `row` on that are raised in `series`, until `_CALM` rows in a row are back."""
        if self.series is None:
            return []
        level, noise = _level(self.curves, self.series, self.row)
        rows, calm = [self.row], 0
        for row in range(self.row + 1, len(self.curves)):
            value = self.at(self.series, row)
            if value is None:
                continue
            if _is_raised(self.series, value, level, noise):
                rows.append(row)
                calm = 0
            else:
                calm += 1
            if calm == _CALM:
                break
        return rows

    @cached_property
    def came_back(self) -> bool:
        """Were `_CALM` rows in a row after it on the old level?"""
        if not self.raised:
            return False
        return len(self.values(self.series, range(self.raised[-1] + 1, len(self.curves)))) >= _CALM

    @cached_property
    def earlier(self) -> list[int]:
        """The first rows of other excursions of the loss, in the past (`PAST` rows, without those near `row`)."""
        found: list[int] = []
        before = None
        for row in self.before[_LEVEL:-_CALM]:
            value = self.at("train/loss", row)
            leaps = before is not None and value is not None and value - before >= _RISE / 2
            before = value
            apart = leaps and (not found or row - found[-1] > _LATE)
            if apart and _is_raised("train/loss", value, *_level(self.curves, "train/loss", row)):
                found.append(row)
        return found

    def resume(self, within: int) -> Break | None:
        """The last start of training at or before `row`, at most `within` rows back."""
        found = [one for one in self.curves.breaks if self.row - within <= one.row <= self.row]
        return found[-1] if found else None

    def events(self, *titles: str, before: int, after: int = 0) -> list[dict]:
        """Events of our record around the beginning, in steps, newest first; by title or kind."""
        first, last = self.step - before, self.step + after
        return [
            event
            for event in reversed(self.curves.events)
            if first <= event.get("step", -1) <= last and (event.get("title") in titles or event.get("kind") in titles)
        ]

    @cached_property
    def record(self) -> Path | None:
        """The folder of our record, None where the log is another one."""
        if self.curves.source != "obs":
            return None
        path = self.curves.path
        return next((folder for folder in (path / FOLDER, path, path.parent) if has_record(folder)), None)

    @property
    def dir(self) -> str:
        """The run's folder, for a command."""
        path = self.curves.path
        return str(self.record.parent if self.record is not None else path.parent if path.is_file() else path)

    # ---- where it began -----------------------------------------------------------------------------------------

    def _ended(self) -> int:
        if self.finding.until is not None:
            return row_of(self.curves.steps, self.finding.until)
        return self.raised[-1] if self.raised else len(self.curves) - 1

    def _began(self) -> tuple[int, str | None]:
        said = next((self.finding.evidence[key] for key in _SINCE if _is_step(self.finding.evidence.get(key))), None)
        first = self.seen if said is None else min(row_of(self.curves.steps, int(said)), self.seen)
        for series in self._follow:
            for anchor in dict.fromkeys((first, self.seen)):
                row = self._first_raised(series, anchor)
                if row is not None:
                    return row, series
        return first, None

    def _first_raised(self, series: str, anchor: int) -> int | None:
        """The first raised row of the excursion that the anchor stands in, or that ended shortly before it."""
        found, calm = None, 0
        for row in range(min(anchor + 1, len(self.curves) - 1), max(anchor - _LOOK_BACK, 0) - 1, -1):
            value = self.at(series, row)
            if value is None:
                continue
            if _is_raised(series, value, *_level(self.curves, series, row)):
                found, calm = row, 0
            else:
                calm += 1
                if calm == (_CALM if found is not None else _LATE):
                    break
        return found


def row_of(steps: array, step: int) -> int:
    """The last row with this step, else the last one before it, else 0."""
    found = 0
    for row in range(len(steps) - 1, -1, -1):
        if steps[row] == step:
            return row
        if steps[row] < step and not found:
            found = row
    return found


def _level(curves: Curves, series: str, row: int) -> tuple[float | None, float]:
    """Median of the `_LEVEL` finite positive values before a row, and the noise of their logarithm.

    The noise is that of the differences between neighbours (1.4826 MAD / sqrt 2, at least 0.03), so that a falling
    curve has no more of it than a level one.
    """
    column = curves.columns.get(series)
    values: list[float] = []
    for back in range(row - 1, max(row - 4 * _LEVEL, -1), -1):
        value = None if column is None else column[back]
        if value is not None and math.isfinite(value) and value > 0:
            values.append(value)
            if len(values) == _LEVEL:
                break
    if len(values) < 4:
        return None, 0.0
    steps = [math.log(a) - math.log(b) for a, b in pairwise(values)]
    centre = middle(steps)
    return middle(values), max(1.4826 * middle([abs(one - centre) for one in steps]) / math.sqrt(2), 0.03)


def _is_raised(series: str, value: float, level: float | None, noise: float) -> bool:
    """Above the level by `_Z` noises, and a loss by 0.1 nats as well (in a memorised run ratios mean little)."""
    if not math.isfinite(value):
        return True
    if level is None or value <= 0:
        return False
    rise = value - level
    return math.log(value / level) >= _Z * noise and (series != "train/loss" or rise >= _RISE)


def _is_step(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
