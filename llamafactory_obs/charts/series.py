"""A series of points: which are kept, how they become an SVG path, what the page's script is told of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from ..texts import text
from .axis import Axis
from .decimate import BUCKETS, decimate
from .plot import HEIGHT, WIDTH, Span, identifier
from .text import compact, number, visible

#: a line that goes up and down this many times the height of the chart is drawn thin: it is a cloud
_DENSE = 15


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: as in the legend.
        steps: whole numbers, ascending within a part.
        values: of the same length; NaN and infinities allowed.
        colour: 0 to 7, a place in the page's colours.
        style: "line"; "raw" (thin and pale, a mean stands over it); "dots" (few points, joined); "dashed".
        scaled: False for a line that may leave the axis, such as a mean that decays below the lowest value.
        parts: positions in `steps` where the line begins anew: after a resume, or another run in the same log.
    """

    name: str
    steps: Sequence[int] | np.ndarray
    values: Sequence[float] | np.ndarray
    colour: int = 0
    style: Literal["line", "raw", "dots", "dashed"] = "line"
    parts: Sequence[int] = ()
    scaled: bool = True


@dataclass
class Drawn:
    """One series as it is drawn: the kept points, part by part."""

    series: Series
    parts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def part_bounds(series: Series) -> list[tuple[int, int]]:
    """First and one past the last position of each part; a part ends where the steps fall back, too."""
    falls = np.flatnonzero(np.diff(np.asarray(series.steps, dtype=np.int64)) < 0) + 1
    inner = sorted({part for part in (*series.parts, *falls.tolist()) if 0 < part < len(series.steps)})
    return list(pairwise([0, *inner, len(series.steps)]))


def kept(series: Series, buckets: int = BUCKETS) -> Drawn:
    """The points of a series that are drawn, see `decimate`; each part has its share of the buckets."""
    steps, values = np.asarray(series.steps, dtype=np.int64), np.asarray(series.values, dtype=float)
    drawn = Drawn(series)
    for begin, end in part_bounds(series):
        if end > begin:
            keep = begin + decimate(steps[begin:end], values[begin:end], max(2, buckets * (end - begin) // len(steps)))
            drawn.parts.append((steps[keep], values[keep]))
    return drawn


def height_of(axis: Axis, values: np.ndarray) -> list[int]:
    """Values as SVG units from the top; what lies beyond the axis stands just outside the picture."""
    return np.round(HEIGHT * (1 - np.clip(axis.at(values), -0.01, 1.01))).astype(int).tolist()


def paths(drawn: Drawn, axis: Axis, span: Span) -> tuple[str, str]:
    """SVG paths of one series: the line with its dots, and a tick on the edge for each value that is not finite."""
    travelled = 0
    line, dots, odd = [], [], {"nan": [], "inf": [], "-inf": []}
    for steps, values in drawn.parts:
        xs = np.round(WIDTH * span.at(steps)).astype(int).tolist()
        finite = np.isfinite(values)
        ys = height_of(axis, np.where(finite, values, 0.0 if not axis.log else axis.low))
        travelled += int(np.abs(np.diff(np.array(ys)[finite])).sum())
        run: list[str] = []
        for x, y, there, value in zip(xs, ys, finite.tolist(), values.tolist(), strict=True):
            if there:
                run.append(f"{x} {y}")
                continue
            _flush(run, line)
            odd["nan" if value != value else "inf" if value > 0 else "-inf"].append(x)
        _flush(run, line)
        if drawn.series.style == "dots":
            dots += [f"M{x} {y}h0" for x, y, there in zip(xs, ys, finite.tolist(), strict=True) if there]
    kind = f"c{drawn.series.colour} {identifier(drawn.series.style)}{' dense' if travelled > _DENSE * HEIGHT else ''}"
    out = [f'<path class="line {kind}" d="{"".join(line)}"/>'] if line else []
    if dots:
        out.append(f'<path class="dot {kind}" d="{"".join(dots)}"/>')
    ticks = []
    edges = {"nan": (HEIGHT, -1), "-inf": (HEIGHT, -1), "inf": (0, 1)}
    for word, places in odd.items():
        edge, way = edges[word]
        if places:
            shape = "".join(f"M{x} {edge}v{way * HEIGHT // 12}" for x in places)
            ticks.append(f'<path class="odd {word}" d="{shape}"/>')
    return "".join(out), "".join(ticks)


def _flush(run: list[str], line: list[str]) -> None:
    """A stretch of finite points into the path; one alone becomes a dot."""
    if run:
        line.append(f"M{' '.join(run)}" + ("h0" if len(run) == 1 else ""))
        run.clear()


def data_of(drawn: Drawn) -> dict:
    """Steps as differences, values with six digits, `b` the positions at which a part begins."""
    steps = np.concatenate([part[0] for part in drawn.parts]) if drawn.parts else np.zeros(0, dtype=np.int64)
    values = [compact(value) for _, part in drawn.parts for value in part.tolist()]
    begins = np.cumsum([0] + [len(part[0]) for part in drawn.parts])[:-1].tolist()
    return {"n": visible(drawn.series.name), "s": np.diff(steps, prepend=0).tolist(), "v": values, "b": begins}


def summary(series: list[Series]) -> str:
    """What there is to see, in words."""
    out = []
    for one in series:
        steps, values = np.asarray(one.steps), np.asarray(one.values, dtype=float)
        finite = np.isfinite(values)
        if not finite.any():
            out.append(text("charts.summary.none_finite", name=one.name, count=len(values)))
            continue
        low, high = int(np.argmin(np.where(finite, values, np.inf))), int(np.argmax(np.where(finite, values, -np.inf)))
        out.append(
            text(
                "charts.summary.line",
                name=one.name,
                count=len(values),
                start=steps[0],
                end=steps[-1],
                first=number(values[0]),
                last=number(values[-1]),
                low=number(values[low]),
                low_at=steps[low],
                high=number(values[high]),
                high_at=steps[high],
            )
        )
    return " ".join(out)
