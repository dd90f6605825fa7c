"""Which layers differ most, from the common rows of two `layers.jsonl`."""

import contextlib
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..record.schema import LAYERS, decode
from .axis import Places
from .model import LayerDifference, Layers, Run

MEASURES = ("grad_norm", "weight_norm", "update_ratio")
#: common rows that are read, and layers that are told
_MOST_ROWS, _TOLD = 120, 6
_LEAST = 0.05
_HEAD = re.compile(rb'\{"step":(\d+),"time":[^,]*,"segment":(\d+),"(\w+)"')


class _File:
    """One `layers.jsonl`: where the newest row of each step lies; rows are decoded when they are asked for."""

    def __init__(self, data: mmap.mmap | bytes):
        self.data = data
        self.names: list[str] = []
        self.at: dict[int, tuple[int, int]] = {}
        segments: dict[int, int] = {}
        newest = -1
        for begin, end, step, segment, first in _lines(data):
            if first == b"names":
                names = _row(data[begin:end]).get("names")
                if isinstance(names, list) and segment >= newest:
                    if [str(name) for name in names] != self.names:
                        self.at.clear()
                        segments.clear()
                    newest, self.names = segment, [str(name) for name in names]
            elif segment >= segments.get(step, -1):
                segments[step], self.at[step] = segment, (begin, end)

    def row(self, step: int) -> dict:
        begin, end = self.at[step]
        return _row(self.data[begin:end])


def layers(a: Run, b: Run, places: Places) -> Layers | None:
    """The layers whose norms differ most in the second half of what both runs have; None where one has no norms."""
    with contextlib.ExitStack() as stack:
        files = [_open(run, stack) for run in (a, b)]
        if None in files:
            return None
        pairs = _common(files, places)
        if not pairs:
            return None
        found = _compared(*files, pairs)
        return found if found.overall else None


def _open(run: Run, stack: contextlib.ExitStack) -> _File | None:
    if run.record is None:
        return None
    file: Path = run.record / LAYERS
    try:
        handle = stack.enter_context(file.open("rb"))
        data = stack.enter_context(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # not there, or empty
        return None
    found = _File(data)
    return found if found.names else None


def _lines(data: mmap.mmap | bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(begin, end, step, segment, first key) of each whole line; a torn one at the end is none."""
    begin = 0
    while (end := data.find(b"\n", begin)) >= 0:
        head = _HEAD.match(data[begin : min(end, begin + 120)])
        if head:
            yield begin, end, int(head[1]), int(head[2]), head[3]
        elif begin < end:
            row = _row(data[begin:end])
            if type(row.get("step")) is int and type(row.get("segment")) is int:
                yield begin, end, row["step"], row["segment"], b"names" if "names" in row else b""
        begin = end + 1


def _row(line: bytes) -> dict:
    import orjson

    try:
        row = decode(line) if b'"nonfinite"' in line else orjson.loads(line)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _common(files: list, places: Places) -> list[tuple[int, int]]:
    """(step of A, step of B) at the same place, the second half of them, at most `_MOST_ROWS`."""
    a, b = files
    steps_b = np.array(sorted(b.at), dtype=np.int64)
    on_a = places.of_b(steps_b)
    pairs = [
        (round(place), step)
        for place, step in zip(on_a.tolist(), steps_b.tolist(), strict=True)
        if round(place) in a.at
    ]
    half = pairs[len(pairs) // 2 :]
    return half[:: max(1, -(-len(half) // _MOST_ROWS))]


def _compared(a: _File, b: _File, pairs: list[tuple[int, int]]) -> Layers:
    names = [name for name in a.names if name in set(b.names)]
    rows_a, rows_b = [a.row(x) for x, _ in pairs], [b.row(y) for _, y in pairs]
    at_a, at_b = [a.names.index(name) for name in names], [b.names.index(name) for name in names]
    overall, found = {}, []
    for measure in MEASURES if names else ():
        x, y = _matrix(rows_a, measure, len(a.names)), _matrix(rows_b, measure, len(b.names))
        if x is None or y is None:
            continue
        x, y = x[:, at_a], y[:, at_b]
        there = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            log_x, log_y = np.where(there, np.log(x), np.nan), np.where(there, np.log(y), np.nan)
        ratios = []
        for i, name in enumerate(names):
            mine, other = log_x[there[:, i], i], log_y[there[:, i], i]
            if len(mine):
                found.append(_layer(measure, name, mine, other))
                ratios.append(found[-1].ratio)
        if ratios:
            overall[measure] = float(np.median(ratios))
    found.sort(key=lambda one: (not one.beyond, -abs(np.log(one.ratio))))
    most = [one for measure in MEASURES for one in [o for o in found if o.measure == measure][:_TOLD]]
    return Layers(overall, most, len(pairs))


def _layer(measure: str, name: str, mine: np.ndarray, other: np.ndarray) -> LayerDifference:
    d = other - mine
    mean = float(d.mean())
    error = float(1.96 * d.std(ddof=1) / np.sqrt(len(d))) if len(d) > 1 else float("inf")
    beyond = abs(mean) > max(error, np.log1p(_LEAST))
    return LayerDifference(
        measure, name, float(np.exp(mine.mean())), float(np.exp(other.mean())), float(np.exp(mean)), error, bool(beyond)
    )


def _matrix(rows: list[dict], measure: str, width: int) -> np.ndarray | None:
    """(rows, layers) with NaN where a value is missing; None where no row has the measure."""
    out, any_ = np.full((len(rows), width), np.nan), False
    for i, row in enumerate(rows):
        values = row.get(measure)
        if isinstance(values, list) and len(values) == width:
            with contextlib.suppress(ValueError, TypeError):
                out[i] = np.array(values, dtype=float)
                any_ = True
    return out if any_ else None
