"""Lines over steps: raw values and their mean, dashed limits, a wanted range; what is not finite is marked, never 0."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..texts import text
from .axis import axis_for
from .decimate import BUCKETS
from .plot import WIDTH, Mark, Plot, Span, legend_item
from .series import Series, data_of, height_of, kept, paths, summary
from .text import number


@dataclass(frozen=True)
class Limit:
    """A value that must not be passed, drawn across the chart."""

    name: str
    value: float


@dataclass(frozen=True)
class Wanted:
    """A range in which the values should be, drawn as a band."""

    name: str
    low: float
    high: float


def line_chart(
    name: str,
    title: str,
    series: list[Series],
    span: Span,
    *,
    unit: str = "",
    log: bool = False,
    zero: bool = False,
    limits: Sequence[Limit] = (),
    wanted: Wanted | None = None,
    marks: Sequence[Mark] = (),
    notes: Sequence[str] = (),
    height: int = 200,
    buckets: int = BUCKETS,
) -> str:
    """A chart of lines as HTML.

    Args:
        name: id on the page.
        series: at least one with a point.
        span: steps across; the same for all charts of a page.
        log: a logarithmic axis; a value of 0 or less then stands at the lower edge.
        zero: the axis begins at 0.
        limits: drawn across, and always on the axis.
        wanted: drawn as a band behind the lines.
        buckets: see `decimate`.
    """
    drawn = [kept(one, buckets) for one in series]
    include = [limit.value for limit in limits] + ([wanted.low, wanted.high] if wanted else [])
    axis = axis_for(
        [np.asarray(one.values, dtype=float) for one in series if one.scaled], log=log, zero=zero, include=include
    )
    shapes, edges, legend, data = [], [], [], []
    if wanted:
        top, bottom = height_of(axis, np.array([wanted.high, wanted.low]))
        shapes.append(f'<path class="wanted" d="M0 {top}H{WIDTH}V{bottom}H0z"/>')
        between = text("charts.range", low=number(wanted.low), high=number(wanted.high))
        legend.append(legend_item("s wanted", wanted.name, between, None, ""))
    for limit in limits:
        shapes.append(f'<path class="limit" d="M0 {height_of(axis, np.array([limit.value]))[0]}H{WIDTH}"/>')
        legend.append(legend_item("s limit", limit.name, number(limit.value), None, ""))
    odd = 0
    for index, one in enumerate(drawn):
        line, ticks = paths(one, axis, span)
        shapes.append(line)
        edges.append(ticks)
        values = np.asarray(one.series.values, dtype=float)
        odd += int((~np.isfinite(values)).sum())
        last = number(values[-1]) if len(values) else ""
        legend.append(legend_item(f"s c{one.series.colour} {one.series.style}", one.series.name, last, index))
        data.append(data_of(one))
    words = list(notes)
    if axis.log:
        words.append(text("charts.log_scale"))
    if odd:
        words.append(text("charts.odd_one" if odd == 1 else "charts.odd", count=odd))
    plot = Plot(name, title, summary(series), span, axis, unit, words, height, list(marks))
    return plot.draw("".join(shapes), "".join(legend), {"series": data}, "".join(edges))
