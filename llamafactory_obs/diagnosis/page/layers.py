"""The norms by layer as heat maps, read from `layers.jsonl` row by row: the file of a long run is large."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...charts import Span, cell_width, heat_map
from ...errors import ConfigError
from ...record.reader import find_folder
from ...record.schema import LAYERS, decode
from ...texts import text
from .shared import Drawing

_MEASURES = ("grad_norm", "update_ratio")


@dataclass
class _Map:
    """The highest value of each cell: (columns of `width` steps, layers)."""

    span: Span
    width: int
    layers: int
    high: np.ndarray = field(init=False)
    nan: np.ndarray = field(init=False)
    there: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        shape = (-(-self.span.width // self.width), self.layers)
        self.high = np.full(shape, -np.inf)
        self.nan, self.there = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)

    def add(self, step: int, values: list) -> None:
        """One row; None is a layer without a gradient in this step.

        Raises:
            ValueError, TypeError: something in it is no number.
        """
        row = np.array(values, dtype=float)  # None becomes NaN
        column, nan = (step - self.span.low) // self.width, np.isnan(row)
        there = np.array([value is not None for value in values]) if None in values else True
        self.there[column] |= there
        self.nan[column] |= nan & there
        np.fmax(self.high[column], row, out=self.high[column])

    def measured(self) -> tuple[list[int], np.ma.MaskedArray]:
        """First steps of the columns with a value, and their rows; NaN where one was and nothing was infinite."""
        columns = np.flatnonzero(self.there.any(axis=1))
        values = np.where(self.nan & ~np.isposinf(self.high), np.nan, self.high)[columns]
        steps = (self.span.low + columns * self.width).tolist()
        return steps, np.ma.masked_array(values, mask=~self.there[columns])


def layer_charts(drawing: Drawing) -> list[str]:
    """One map for each measure that the record has."""
    file = _file(drawing)
    names, maps = _read(file, drawing.span) if file else ([], {})
    charts = []
    for measure in _MEASURES:
        steps, values = maps[measure].measured() if measure in maps else ([], None)
        if steps:
            title = text(f"page.title.layers_{measure}")
            name = f"layers-{measure.replace('_', '-')}"
            charts.append(heat_map(name, title, steps, names, values, drawing.span, marks=drawing.marks()))
    if not charts:
        drawing.missing.append(text("page.missing.layers"))
    return charts


def _file(drawing: Drawing) -> Path | None:
    if drawing.curves.source != "obs":
        return None
    try:
        file = find_folder(drawing.curves.path) / LAYERS
    except ConfigError:
        return None
    return file if file.is_file() else None


def _read(file: Path, span: Span) -> tuple[list[str], dict[str, _Map]]:
    """The newest segment's names, and a map for each measure.

    Where segments overlap, the newest one counts; segments of other names than the newest's are left out, as in
    `record.reader`.
    """
    names: dict[int, list[str]] = {}
    ranges: dict[int, tuple[int, int]] = {}
    for row in _rows(file):
        segment, step = row["segment"], row["step"]
        if isinstance(row.get("names"), list):
            names[segment] = [str(name) for name in row["names"]]
            continue
        low, high = ranges.get(segment, (step, step))
        ranges[segment] = (min(low, step), max(high, step))
    if not names:
        return [], {}
    newest = names[max(names)]
    width = cell_width(span, len(newest))
    maps: dict[str, _Map] = {}
    for row in _rows(file):
        segment, step = row["segment"], row["step"]
        later = any(low <= step <= high for other, (low, high) in ranges.items() if other > segment)
        if "names" in row or later or names.get(segment) != newest or not span.low <= step <= span.high:
            continue
        for measure in _MEASURES:
            values = row.get(measure)
            if isinstance(values, list) and len(values) == len(newest):
                if measure not in maps:
                    maps[measure] = _Map(span, width, len(newest))
                with contextlib.suppress(ValueError, TypeError):
                    maps[measure].add(step, values)
    return newest, maps


def _rows(file: Path) -> Iterator[dict]:
    """Rows with a step and a segment; a torn line is none. Only few rows need the exact decoding of NaN."""
    import orjson

    with open(file, "rb") as handle:
        for line in handle:
            try:
                row = decode(line) if b'"nonfinite"' in line else orjson.loads(line)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
                continue
            if isinstance(row, dict) and type(row.get("step")) is int and type(row.get("segment")) is int:
                yield row
