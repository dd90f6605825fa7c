"""What all charts of a diagnosis share: the steps across, the marks, columns as arrays, what was found missing."""

from dataclasses import dataclass, field

import numpy as np

from ...charts import BUCKETS, Mark, Series, Span, ema, part_bounds
from ...logs.curves import Curves
from ...texts import text
from ...texts.findings import title
from ..result import Diagnosis


@dataclass
class Drawing:
    """One log being drawn.

    Attributes:
        span: steps across all charts.
        flags: marks with their labels, for the first chart.
        lines: the same marks without labels, for all others.
        missing: what the log does not hold, one phrase each; filled by the charts.
    """

    curves: Curves
    span: Span
    flags: list[Mark]
    lines: list[Mark]
    missing: list[str] = field(default_factory=list)
    _flagged: bool = False

    def marks(self) -> list[Mark]:
        """The marks of the next chart: the first one gets the flags."""
        if self._flagged:
            return self.lines
        self._flagged = True
        return self.flags

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Steps, values and the positions where another start of training begins; empty where there is none."""
        column = self.curves.columns.get(name)
        if column is None or not len(column):
            return np.zeros(0, dtype=np.int64), np.zeros(0), []
        rows = np.flatnonzero(np.frombuffer(column.present, dtype=np.uint8))
        steps = np.frombuffer(self.curves.steps, dtype=np.int64)[rows]
        values = np.frombuffer(column.values, dtype=np.float64)[rows]
        return steps, values, np.searchsorted(rows, [brk.row for brk in self.curves.breaks]).tolist()

    def series(self, name: str, label: str = "", **looks) -> Series | None:
        """A column as a line; None where the log has no such number."""
        steps, values, parts = self.column(name)
        return Series(label or name, steps, values, parts=parts, **looks) if len(steps) else None

    def setting(self, name: str, default=None):
        """A training argument, where it is known."""
        value = self.curves.settings.get(name)
        return default if value is None else value


def mean_of(series: Series, name: str) -> tuple[Series, int]:
    """The exponential moving average of a line, and its span in rows.

    It begins anew at every start of training, so that it hides no gap, and stops where a value is not finite.
    """
    values = np.asarray(series.values)
    span = int(min(200, max(5, len(values) // 40)))
    bounds = part_bounds(series)
    mean = np.concatenate([ema(values[begin:end], span) for begin, end in bounds])
    there = np.flatnonzero(np.isfinite(mean))
    gaps = np.flatnonzero(np.diff(there) > 1) + 1
    starts = np.searchsorted(there, [begin for begin, _ in bounds[1:]])
    parts = np.union1d(gaps, starts).astype(int).tolist()
    drawn = Series(name, np.asarray(series.steps)[there], mean[there], series.colour, parts=parts, scaled=False)
    return drawn, span


def with_mean(series: Series) -> tuple[list[Series], list[str]]:
    """A line with more points than are drawn, pale under its mean, and the remark that says so; else the line."""
    if len(series.steps) <= 2 * BUCKETS:
        return [series], []
    mean, span = mean_of(series, text("page.ema"))
    raw = Series(series.name, series.steps, series.values, series.colour, "raw", series.parts)
    return [raw, mean], [text("page.ema_rows", span=span)]


def drawing_of(curves: Curves, diagnosis: Diagnosis) -> Drawing | None:
    """The drawing; None where the log has no row."""
    if not len(curves):
        return None
    steps = np.frombuffer(curves.steps, dtype=np.int64)
    span = Span(int(steps.min()), int(steps.max()))
    flags = [*_breaks(curves, span), *_findings(diagnosis, span)]
    lines = [Mark(mark.step, mark.until, "", mark.title, mark.kind) for mark in flags]
    return Drawing(curves, span, flags, lines)


def _breaks(curves: Curves, span: Span) -> list[Mark]:
    marks = []
    for brk in curves.breaks:
        if 0 <= brk.row < len(curves):
            step, what = curves.steps[brk.row], text(f"page.break.{brk.kind}")
            marks.append(Mark(step, None, what, text("page.mark", what=what, step=step), "resume"))
    return marks


def _findings(diagnosis: Diagnosis, span: Span) -> list[Mark]:
    """A flag with its number for each finding; one that lies outside the log's steps is put at its edge."""
    marks = []
    for number, finding in enumerate(diagnosis.findings, 1):
        step = min(max(finding.step, span.low), span.high)
        until = None if finding.until is None else min(max(finding.until, step), span.high)
        said = text("page.finding", number=number, name=title(finding.name), step=finding.step)
        marks.append(Mark(step, until, str(number), said, finding.level, f"finding-{number}"))
    return marks
