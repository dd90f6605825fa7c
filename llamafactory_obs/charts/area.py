"""Parts of a whole over steps, stacked, such as the parts of a step's time."""

from collections.abc import Sequence

import numpy as np

from ..texts import text
from .axis import Axis
from .decimate import BUCKETS, bucket_means
from .plot import WIDTH, Mark, Plot, Span, legend_item
from .series import Series, height_of, kept, paths
from .text import compact, number, visible

#: the axis is cut where the highest whole is this much above all but the highest 2 %: one long save hides all else
_CUT = 4.0


def stacked_area(
    name: str,
    title: str,
    steps: Sequence[int] | np.ndarray,
    parts: dict[str, np.ndarray],
    whole: np.ndarray,
    span: Span,
    *,
    unit: str = "",
    marks: Sequence[Mark] = (),
    height: int = 220,
    buckets: int = BUCKETS,
) -> str:
    """A chart of stacked parts as HTML.

    With more rows than buckets the areas are means of buckets; the line of the whole keeps its lowest and highest.

    Args:
        steps: ascending whole numbers.
        parts: name -> values of the same length, finite and not negative; the first lies at the bottom. The place in
            it gives the colour; a part that is 0 throughout is not drawn.
        whole: their sum as it was measured, of the same length.
        span: steps across.
    """
    steps, whole = np.asarray(steps, dtype=np.int64), np.asarray(whole, dtype=float)
    middle, columns, counts = bucket_means(steps, list(parts.values()), buckets)
    axis, cut = _axis(whole, np.sum(columns, axis=0))
    xs = np.round(WIDTH * span.at(middle)).astype(int).tolist()
    shapes, legend, data = [], [], []
    floor = np.zeros(len(middle))
    total = float(whole.sum()) or 1.0
    for colour, (part, column) in enumerate(zip(parts, columns, strict=True)):
        if not np.any(parts[part]):
            continue
        ceiling = floor + column
        shapes.append(f'<path class="fill a{colour % 10}" d="{_ring(xs, floor, ceiling, axis)}"/>')
        share = float(np.asarray(parts[part]).sum()) / total
        legend.append(legend_item(f"s a{colour % 10}", part, f"{share:.1%}", len(data), ""))
        data.append(
            {
                "n": visible(part),
                "s": np.diff(middle, prepend=0).tolist(),
                "v": [compact(value) for value in column.tolist()],
                "b": [0],
            }
        )
        floor = ceiling
    line = kept(Series("whole", steps, whole, style="raw"), buckets)
    shapes.append(paths(line, axis, span)[0].replace('class="line c0 raw"', 'class="line whole"'))
    notes = [text("charts.shares")]
    if counts.max() > 1:
        notes.append(text("charts.means", steps=int(counts.max())))
    if cut:
        top = int(np.argmax(whole))
        notes.append(text("charts.axis_cut", count=cut, high=number(whole[top]), unit=unit, step=steps[top]))
    shares = "; ".join(f"{part} {float(np.asarray(values).sum()) / total:.1%}" for part, values in parts.items())
    summary = text("charts.summary.area", count=len(steps), parts=shares)
    plot = Plot(name, title, summary, span, axis, unit, notes, height, list(marks))
    return plot.draw("".join(shapes), "".join(legend), {"series": data, "fixed": 1})


def _axis(whole: np.ndarray, stacked: np.ndarray) -> tuple[Axis, int]:
    """The axis from 0, and the number of steps that are above it."""
    high = float(max(whole.max(), stacked.max())) or 1.0
    usual = float(np.quantile(whole, 0.98))
    if len(whole) >= 20 and 0 < usual * _CUT < high:
        top = usual * 1.5
        return Axis(0.0, top), int((whole > top).sum())
    return Axis(0.0, high * 1.05), 0


def _ring(xs: list[int], floor: np.ndarray, ceiling: np.ndarray, axis: Axis) -> str:
    """The outline of one part: along its ceiling, and back along its floor. One point alone gets some width."""
    tops, bottoms = height_of(axis, ceiling), height_of(axis, floor)
    if len(xs) == 1:
        xs, tops, bottoms = [max(0, xs[0] - WIDTH // 200), min(WIDTH, xs[0] + WIDTH // 200)], tops * 2, bottoms * 2
    there = " ".join(f"{x} {y}" for x, y in zip(xs, tops, strict=True))
    back = " ".join(f"{x} {y}" for x, y in zip(reversed(xs), reversed(bottoms), strict=True))
    return f"M{there} {back}z"
