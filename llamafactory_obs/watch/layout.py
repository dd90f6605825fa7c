"""Where everything stands, on a screen of any size."""

import math

import numpy as np
from rich.cells import cell_len

from ..charts.text import number
from ..live import CURVES, Points, Snapshot
from ..texts import text
from . import panels
from .canvas import Canvas
from .plot import axis_of, plot
from .writing import Writing

#: column -> its key in the texts, colour, the callback that writes it where it is not on in every record
_CHARTS = dict(
    zip(
        CURVES,
        (("train_loss", "green", ""), ("eval_loss", "cyan", ""), ("grad_norm", "yellow", ""),
         ("tokens", "magenta", "throughput")),
        strict=True,
    )
)  # fmt: skip
#: columns of numbers left of a chart; its lowest and highest number of rows
_GUTTER, _LOWEST, _HIGHEST = 8, 2, 14
#: the picture gets longer by this factor
_GROWS = 1.15
#: columns that a chart needs, that it has at least where all four stand side by side, and between two of them
_NARROWEST, _WIDE, _BETWEEN = 28, 50, 2


def draw(snapshot: Snapshot, width: int, height: int, writing: Writing, paused: bool = False) -> Canvas:
    """The screen: head, curves, machine, data, probes, alerts, foot. What finds no room is left out."""
    canvas = Canvas(width, height, writing)
    _lines(canvas, height - 1, [panels.foot(snapshot, paused)])
    rows = height - 1
    at = _lines(canvas, 0, panels.head(snapshot, width, writing)[:rows])
    if snapshot.status == "waiting":
        return canvas
    per_row = max(1, min(4 if width >= 4 * _WIDE else 2, (width + _BETWEEN) // (_NARROWEST + _BETWEEN)))
    least = min(rows - at, sum(_least(snapshot, rows)) + 2)
    for count in range(len(_CHARTS), 0, -per_row):  # fewer charts where they would be too low
        each = min(_HIGHEST, (rows - at - least - 1) // -(-count // per_row) - 1)
        if each >= _LOWEST:
            at = _charts(canvas, snapshot, at, per_row, each, count)
            break
    at = _lines(canvas, at, [panels.machine(snapshot, width), panels.data(snapshot, width)][: rows - at])
    free = rows - at
    probes, alerts = _least(snapshot, rows)
    if free > probes + alerts:  # what is open first
        alerts = max(alerts, len(panels.alerts(snapshot, free - probes, width, writing)))
    else:
        alerts = min(alerts, max(1, free // 2), free)
    probes = free - alerts
    at = _lines(canvas, at, panels.probes(snapshot, probes)[:probes])
    _lines(canvas, at, panels.alerts(snapshot, rows - at, width, writing)[: rows - at])
    return canvas


def _least(snapshot: Snapshot, rows: int) -> tuple[int, int]:
    """Rows for probes and alerts before the charts get any: more on a higher screen."""
    if rows < 14:
        return 1, 2
    asked = 0 if snapshot.probes is None else len(snapshot.probes.probes)
    return 1 + min(asked, max(1, rows // 10)), max(2, rows // 7)


def _charts(canvas: Canvas, snapshot: Snapshot, at: int, per_row: int, each: int, count: int) -> int:
    """The first `count`; returns the row below them."""
    width = (canvas.width - _BETWEEN * (per_row - 1)) // per_row
    span = span_of(snapshot)
    for place, (name, (key, colour, callback)) in enumerate(list(_CHARTS.items())[:count]):
        row = at + place // per_row * (each + 1)
        left = place % per_row * (width + _BETWEEN)
        points = snapshot.curves[name]
        _chart(canvas, row, left, left + width, each, points, span, key, colour, _why(snapshot, key, callback))
    row = at - (-count // per_row) * (each + 1)
    for place in range(per_row):
        left = place * (width + _BETWEEN)
        _ruler(canvas, row, left, left + width, span)
    return row + 1


def span_of(snapshot: Snapshot) -> tuple[int, int]:
    """The first and the last step of the picture. It is up to `_GROWS` times as long as the curves, at most to the
    planned end: the curves only grow to the right, and nothing that is drawn moves, until the picture is full."""
    held = [points.steps for points in snapshot.curves.values() if len(points.steps)]
    first = min((int(steps[0]) for steps in held), default=0)
    last = max((int(steps[-1]) for steps in held), default=first)
    length = max(1, last - first)
    grown = math.ceil(_GROWS ** math.ceil(math.log(length, _GROWS) - 1e-9))
    planned = max(last, snapshot.max_steps or 0) - first
    return first, first + max(length, min(grown, planned or grown))


def _why(snapshot: Snapshot, key: str, callback: str) -> str:
    """Why a chart is empty."""
    if key == "eval_loss":
        return text("watch.chart.none_eval")
    if callback and snapshot.step > 1:
        return text("watch.chart.none_column", callback=callback)
    return text("watch.chart.none")


def _chart(
    canvas: Canvas, row: int, left: int, right: int, height: int, points: Points, span, key: str, colour: str, why: str
) -> None:
    """A heading with the newest value, then the curve with its highest and lowest value at the left."""
    column = canvas.put(row, left + 1, text(f"watch.chart.{key}"), "bold", right)
    if not points.count:
        canvas.put(row, column + 1, why, "dim", right)
        return
    axis = axis_of(points)
    column = canvas.put(row, column + 1, number(points.last), colour, right)
    notes = [text("watch.chart.log")] if axis.log else []
    if points.means is not None and np.isfinite(points.means[-1]):
        notes.append(text("watch.chart.mean", value=number(float(points.means[-1]))))
    finite = np.where(np.isfinite(points.values), points.values, np.inf)
    if key == "eval_loss" and np.isfinite(finite.min()):
        lowest = int(finite.argmin())
        notes.append(text("watch.chart.lowest", value=number(float(finite[lowest])), step=int(points.steps[lowest])))
    for note in notes:
        if column + 2 + cell_len(note) <= right:
            column = canvas.put(row, column + 2, note, "dim", right)
    unicode = canvas.writing.unicode
    for place, cells in enumerate(plot(points, axis, span, right - left - _GUTTER, height, unicode, colour)):
        canvas.put_cells(row + 1 + place, left + _GUTTER, cells)
        if place in (0, height - 1):
            label = _label(axis.high if place == 0 else axis.low)
            canvas.put(row + 1 + place, left + max(0, _GUTTER - 1 - len(label)), label, "dim", left + _GUTTER)


def _label(value: float) -> str:
    """A number within the gutter."""
    if 1000 <= abs(value) < 10 ** (_GUTTER - 2):
        return f"{value:.0f}"
    return next((label for label in (f"{value:.3g}", f"{value:.2g}") if len(label) < _GUTTER), f"{value:.0e}")


def _ruler(canvas: Canvas, row: int, left: int, right: int, span: tuple[int, int]) -> None:
    """The steps at both ends."""
    last = str(span[1])
    column = canvas.put(row, left, text("watch.chart.steps"), "dim", left + _GUTTER - 1)
    column = canvas.put(row, max(column + 1, left + _GUTTER), str(span[0]), "dim", right)
    if right - len(last) > column:
        canvas.put(row, right - len(last), last, "dim", right)


def _lines(canvas: Canvas, row: int, lines: list[panels.Line]) -> int:
    """Lines one below the other; returns the row below them."""
    for pieces in lines:
        column = 0
        for said, style in pieces:
            column = canvas.put(row, column, said, style)
        row += 1
    return row
