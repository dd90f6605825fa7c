"""A heat map: names down, steps across, colour on a logarithmic scale; the highest value of a cell's steps counts."""

import base64
import math
from collections.abc import Sequence

import numpy as np

from ..texts import text
from .plot import HEIGHT, WIDTH, Mark, Plot, Span
from .png import data_uri, png
from .text import number, visible

#: cells in one map at most: what a page of moderate size holds with a value behind each
MOST_CELLS = 30_000
_MOST_COLUMNS = 320
#: codes of a cell; the numbers between are places on the scale, _LOWEST to _HIGHEST
_MISSING, _ZERO, _NAN, _INF, _LOWEST, _HIGHEST = 0, 1, 2, 3, 4, 65535
#: places on the scale that have a colour of their own
_COLOURS = 240
#: viridis (van der Walt and Smith, CC0) at nine even places: rises in lightness, for every kind of colour vision
_VIRIDIS = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725")
_ODD = {_MISSING: (0, 0, 0, 0), _ZERO: (0, 0, 0, 255), _NAN: (255, 0, 80, 255), _INF: (255, 120, 160, 255)}


def heat_map(
    name: str,
    title: str,
    steps: Sequence[int],
    names: Sequence[str],
    values: np.ndarray,
    span: Span,
    *,
    unit: str = "",
    marks: Sequence[Mark] = (),
    notes: Sequence[str] = (),
) -> str:
    """The map as HTML.

    Args:
        steps: ascending whole numbers, one for each row of `values`.
        names: one for each column of `values`; the first is at the top.
        values: (steps, names), not negative; NaN is drawn as such. A masked cell (`numpy.ma`) was not measured.
        span: steps across.
    """
    cells, width = _cells(np.asarray(steps, dtype=np.int64), np.ma.masked_array(values), span)
    codes, low, high = _codes(cells)
    uri = data_uri(png(_pixels(codes), _palette()))
    across = WIDTH * codes.shape[1] * width / span.width
    picture = (
        f'<image class="heat" x="0" y="0" width="{across:.1f}" height="{HEIGHT}" preserveAspectRatio="none" '
        f'href="{uri}"/>'
    )
    row = max(3.0, min(16.0, 480 / max(1, len(names))))
    height = max(48, round(row * len(names)))
    words = [text("charts.highest", width=width), *notes] if width > 1 else list(notes)
    data = {
        "heat": {
            "names": [visible(name) for name in names],
            "width": width,
            "columns": codes.shape[1],
            "scale": [low, high, _LOWEST, _HIGHEST],
            "codes": base64.b64encode(codes.astype("<u2").tobytes()).decode("ascii"),
        }
    }
    plot = Plot(
        name, title, _summary(steps, names, cells), span, None, unit, words, height, list(marks), _labels(names, height)
    )
    return plot.draw(picture, _legend(codes, low, high), data)


def cell_width(span: Span, names: int) -> int:
    """Steps in one cell at least, so that a map of so many names keeps a moderate size."""
    return math.ceil(span.width / max(8, min(_MOST_COLUMNS, MOST_CELLS // max(1, names))))


def _cells(steps: np.ndarray, values: np.ma.MaskedArray, span: Span) -> tuple[np.ma.MaskedArray, int]:
    """(names, columns): the highest of each cell's values, infinity above NaN above numbers; the steps in a column."""
    apart = int(np.median(np.diff(steps))) if len(steps) > 1 else 1
    width = max(1, min(apart, span.width), cell_width(span, values.shape[1]))
    column = (steps - span.low) // width
    starts = np.concatenate([[0], np.flatnonzero(np.diff(column)) + 1])
    data = np.asarray(values.data, dtype=float)
    missing = np.ma.getmaskarray(values)
    nan = np.isnan(data) & ~missing
    high = np.maximum.reduceat(np.where(missing | nan, -np.inf, data), starts, axis=0)
    any_nan = np.logical_or.reduceat(nan, starts, axis=0)
    none = np.logical_and.reduceat(missing, starts, axis=0)
    high = np.where(any_nan & ~np.isposinf(high), np.nan, high)
    out = np.ma.masked_all((values.shape[1], math.ceil(span.width / width)), dtype=float)
    out[:, column[starts]] = np.ma.masked_array(high, mask=none).T
    return out, width


def _codes(cells: np.ma.MaskedArray) -> tuple[np.ndarray, float, float]:
    """Cells as 16-bit codes, and the two ends of the logarithmic scale."""
    data, there = cells.filled(0.0), ~np.ma.getmaskarray(cells)
    scaled = there & np.isfinite(data) & (data > 0)
    low, high = (float(data[scaled].min()), float(data[scaled].max())) if scaled.any() else (1.0, 1.0)
    room = (math.log(high) - math.log(low)) or 1.0
    codes = np.zeros(data.shape, dtype=np.int64)
    place = (np.log(np.where(scaled, data, low)) - math.log(low)) / room
    codes[scaled] = np.round(_LOWEST + place * (_HIGHEST - _LOWEST)).astype(np.int64)[scaled]
    codes[there & (data <= 0)] = _ZERO
    codes[there & np.isnan(data)] = _NAN
    codes[there & np.isposinf(data)] = _INF
    return codes, low, high


def _pixels(codes: np.ndarray) -> np.ndarray:
    place = (codes - _LOWEST) * (_COLOURS - 1) // (_HIGHEST - _LOWEST) + _LOWEST
    return np.where(codes < _LOWEST, codes, place).astype(np.uint8)


def _palette() -> list[tuple[int, int, int, int]]:
    anchors = np.array([[int(colour[i : i + 2], 16) for i in (0, 2, 4)] for colour in _VIRIDIS], dtype=float)
    places = np.linspace(0, len(anchors) - 1, _COLOURS)
    parts = [np.interp(places, range(len(anchors)), anchors[:, i]).round().astype(int).tolist() for i in range(3)]
    return [_ODD[code] for code in range(_LOWEST)] + [(r, g, b, 255) for r, g, b in zip(*parts, strict=True)]


def _labels(names: Sequence[str], height: int) -> list[tuple[float, str]]:
    """As many names as there is room for, each at its row's middle."""
    every = max(1, math.ceil(13 * len(names) / height))
    return [((i + 0.5) / len(names), names[i]) for i in range(0, len(names), every)]


def _legend(codes: np.ndarray, low: float, high: float) -> str:
    out = []
    if (codes >= _LOWEST).any():
        bar = ", ".join(f"#{colour}" for colour in _VIRIDIS)
        middle = math.sqrt(low) * math.sqrt(high)
        out.append(
            f'<li class="scale">{number(low)}<i style="background:linear-gradient(to right, {bar})"></i>{number(high)} '
            f"<em>{text('charts.scale', value=number(middle))}</em></li>"
        )
    kinds = {_ZERO: ("zero", "0"), _NAN: ("nan", "NaN"), _INF: ("inf", "inf")}
    kinds[_MISSING] = ("missing", text("charts.not_measured"))
    out += [
        f'<li><i class="s cell-{name}"></i>{word}</li>' for code, (name, word) in kinds.items() if (codes == code).any()
    ]
    out.append('<li class="here"><b data-heat></b></li>')
    return "".join(out)


def _summary(steps: Sequence[int], names: Sequence[str], cells: np.ma.MaskedArray) -> str:
    data = cells.filled(np.nan)
    finite = np.where(np.isfinite(data), data, -np.inf)
    top = int(np.argmax(finite.max(axis=1)))
    shown = text("charts.summary.heat", rows=len(names), steps=len(steps), first=steps[0], last=steps[-1])
    if np.isfinite(finite[top].max()):
        shown += text("charts.summary.heat_top", value=number(float(finite[top].max())), name=names[top])
    return shown
