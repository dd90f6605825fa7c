"""Memory, tokens per second, the parts of a step's time, the use of the GPU."""

import numpy as np

from ...charts import Limit, Series, line_chart, stacked_area
from ...logs.curves import Column
from ...texts import text
from ..wanted import memory_limit
from .shared import Drawing, with_mean

#: the parts of `time/step_s` (docs/keys.md), in the order in which they come in a step
_PARTS = (
    "data_wait",
    "h2d",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "callbacks",
    "checkpoint",
    "eval",
    "other",
)
_MEMORY = (
    ("system/allocated_gib", "allocated", 0, "line"),
    ("system/reserved_gib", "reserved", 2, "line"),
    ("system/peak_allocated_gib", "peak_allocated", 0, "dashed"),
    ("system/peak_reserved_gib", "peak_reserved", 2, "dashed"),
    ("system/device_used_gib", "device", 1, "line"),
)


def memory_charts(drawing: Drawing) -> list[str]:
    """VRAM with its limit; without a GPU the memory of the process."""
    series = [
        drawing.series(name, text(f"page.line.{line}"), colour=colour, style=style)
        for name, line, colour, style in _MEMORY
    ]
    series = [one for one in series if one is not None]
    if series:
        limits = [Limit(text("page.limit"), memory_limit(drawing.curves.run))] if drawing.curves.source == "obs" else []
        title = text("page.title.gpu_memory")
    else:
        drawing.missing.append(text("page.missing.memory"))
        series = [drawing.series("system/rss_gib", text("page.line.rss"))]
        series, limits, title = [one for one in series if one is not None], [], text("page.title.rss")
    if not series:
        return []
    return [
        line_chart(
            "vram", title, series, drawing.span, unit="GiB", zero=True, limits=limits, marks=drawing.marks(), height=200
        )
    ]


def time_charts(drawing: Drawing) -> list[str]:
    """Tokens per second, parts of the step time, use of the GPU."""
    charts = [_speed(drawing), _parts(drawing), _gpu(drawing)]
    return [chart for chart in charts if chart]


def _speed(drawing: Drawing) -> str:
    speed = drawing.series("system/tokens_per_sec", text("page.line.tokens"), colour=2)
    if speed is not None:
        series, notes = with_mean(speed)
        title, marks = text("page.title.tokens"), drawing.marks()
        return line_chart("tokens", title, series, drawing.span, zero=True, marks=marks, notes=notes, height=180)
    drawing.missing.append(text("page.missing.tokens"))
    pace = drawing.series("time/per_step_s", text("page.line.pace"), colour=2)
    if pace is None:
        return ""
    series, notes = with_mean(pace)
    title, marks = text("page.title.pace"), drawing.marks()
    return line_chart("pace", title, series, drawing.span, unit="s", zero=True, marks=marks, notes=notes, height=180)


def _parts(drawing: Drawing) -> str:
    curves = drawing.curves
    names = [name for name in _PARTS if curves.has(f"time/{name}_s")]
    if not curves.has("time/step_s") or len(names) < 2:
        drawing.missing.append(text("page.missing.parts"))
        return ""
    steps = np.frombuffer(curves.steps, dtype=np.int64)
    arrays = {name: _filled(curves.columns.get(f"time/{name}_s"), len(steps)) for name in _PARTS}
    whole = _filled(curves.columns["time/step_s"], len(steps))
    good = np.isfinite(whole) & (whole > 0) & np.all([np.isfinite(array) for array in arrays.values()], axis=0)
    keep = np.flatnonzero(good)[np.diff(steps[good], prepend=-1) > 0]
    if not len(keep) or not any(array[keep].any() for array in arrays.values()):
        drawing.missing.append(text("page.missing.parts_finite"))
        return ""
    arrays = {text(f"page.part.{name}"): np.maximum(array[keep], 0.0) for name, array in arrays.items()}
    title, marks = text("page.title.parts"), drawing.marks()
    return stacked_area("step-time", title, steps[keep], arrays, whole[keep], drawing.span, unit="s", marks=marks)


def _filled(column: Column | None, rows: int) -> np.ndarray:
    """The values of all rows, 0 where a row has none."""
    if column is None:
        return np.zeros(rows)
    there = np.frombuffer(column.present, dtype=np.uint8).astype(bool)
    return np.where(there, np.frombuffer(column.values, dtype=np.float64), 0.0)


def _gpu(drawing: Drawing) -> str:
    series: list[Series | None] = [
        drawing.series("system/gpu_util", text("page.line.gpu"), colour=0),
        drawing.series("system/sm_activity", text("page.line.sm"), colour=1),
        drawing.series("system/gpu_memory_util", text("page.line.gpu_memory"), colour=7, style="dashed"),
    ]
    series = [one for one in series if one is not None]
    if not series:
        drawing.missing.append(text("page.missing.gpu"))
        return ""
    title, marks = text("page.title.gpu"), drawing.marks()
    return line_chart("gpu", title, series, drawing.span, zero=True, marks=marks, height=160)
