"""A curve in characters: braille (2 x 4 dots in a cell), or three heights a row in plain ASCII."""

import math

import numpy as np

from ..charts.axis import Axis, axis_for
from ..live import Points

#: dots of a braille cell, from the top, left and right column (Unicode 16.0, chapter 21.1)
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
#: heights of an ASCII cell, from the top; several of them
_ASCII, _SEVERAL = ("'", "-", "."), ":"
#: values above 0 that spread further than this are drawn on a logarithmic axis
_LOG = 50.0

#: a cell: character and style
Cell = tuple[str, str]


def axis_of(points: Points) -> Axis:
    """From the lowest to the highest finite value, both rounded outwards: a slightly lower value moves nothing."""
    finite = points.values[np.isfinite(points.values)]
    if not len(finite):
        return Axis(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if high - low <= 1e-6 * abs(high) or not math.isfinite(high - low):
        return axis_for([finite])
    if low > 0 and high > _LOG * low:
        return Axis(_outwards(low, low, math.floor), _outwards(high, high, math.ceil), log=True)
    return Axis(_outwards(low, high - low, math.floor), _outwards(high, high - low, math.ceil))


def _outwards(value: float, size: float, way) -> float:
    """Rounded to a tenth of the power of ten in `size`."""
    digits = 1 - math.floor(math.log10(size))
    if not -300 < digits < 300:
        return value
    rounded = way(round(value * 10.0**digits, 6)) / 10.0**digits
    return rounded if math.isfinite(rounded) else value


def plot(
    points: Points, axis: Axis, span: tuple[int, int], width: int, height: int, unicode: bool, colour: str
) -> list[list[Cell]]:
    """`height` rows of `width` cells.

    With a moving average the values are a pale cloud and the average stands in front of it: a cell that it passes shows
    nothing else. A column with a value that is not finite has a red `x` at the bottom.

    Args:
        span: the steps at the left and the right edge.
        colour: of the line.
    """
    across, up = (2, 4) if unicode else (1, 3)
    xs = _columns(points.steps, span, width * across)
    values = _dots(xs, points.values, axis, width * across, height * up)
    means = None
    if points.means is not None:
        means = _dots(xs, points.means, axis, width * across, height * up)
    bad = {int(x) // across for x in xs[~np.isfinite(points.values)]}
    rows = []
    for row in range(height):
        cells = []
        for column in range(width):
            block = np.s_[row * up : (row + 1) * up, column * across : (column + 1) * across]
            if row == height - 1 and column in bad:
                cells.append(("x", "red"))
            elif means is not None and means[block].any():
                cells.append((_char(means[block], unicode), colour))
            elif values[block].any():
                cells.append((_char(values[block], unicode), "dim" if means is not None else colour))
            else:
                cells.append((" ", ""))
        rows.append(cells)
    return rows


def _columns(steps: np.ndarray, span: tuple[int, int], width: int) -> np.ndarray:
    first, last = span
    return np.rint((steps - first) / max(1, last - first) * (width - 1)).astype(int).clip(0, width - 1)


def _dots(xs: np.ndarray, values: np.ndarray, axis: Axis, width: int, height: int) -> np.ndarray:
    """Which dots are set, the top row first: a line through the finite points, broken where one is not."""
    dots = np.zeros((height, width), dtype=bool)
    finite = np.isfinite(values)
    places = axis.at(np.where(finite, values, axis.low)).clip(0, 1)
    ys = np.rint((1 - places) * (height - 1)).astype(int).tolist()
    before: tuple[int, int] | None = None
    for x, y, there in zip(xs.tolist(), ys, finite.tolist(), strict=True):
        if not there:
            before = None
            continue
        if before is None or before[0] == x:
            low, high = sorted((y, before[1] if before else y))
            dots[low : high + 1, x] = True
        else:
            _stroke(dots, *before, x, y)
        before = (x, y)
    return dots


def _stroke(dots: np.ndarray, x0: int, y0: int, x1: int, y1: int) -> None:
    """A straight line to the right, whole in every column."""
    at = y0
    for x in range(x0 + 1, x1 + 1):
        to = round(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        low, high = sorted((at + (to > at) - (to < at), to))
        dots[low : high + 1, x] = True
        at = to


def _char(block: np.ndarray, unicode: bool) -> str:
    if unicode:
        return chr(0x2800 + sum(_BRAILLE[y][x] for y, x in zip(*np.nonzero(block), strict=True)))
    set_ = np.flatnonzero(block[:, 0])
    return _ASCII[set_[0]] if len(set_) == 1 else _SEVERAL
