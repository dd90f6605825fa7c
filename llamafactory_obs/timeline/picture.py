"""A timeline as a self-contained SVG: one lane for each metric, events as lines through all of them."""

import math

from ..charts.axis import Axis as Values
from ..charts.text import escape
from ..texts import text
from ..texts.wrap import cells
from .happened import KINDS, Happening
from .lanes import Axis, Lane
from .terminal import said
from .timeline import Timeline

PIECES = 600
_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 232, 30, 58
_LANE, _GAP = 64, 14
_MARK = 16
_COLOUR = {
    "error": "#c62828",
    "warn": "#e08600",
    "finding": "#8e24aa",
    "start": "#00838f",
    "lr": "#1565c0",
    "checkpoint": "#558b2f",
    "eval": "#6d4c41",
    "other": "#9e9e9e",
}
#: drawn through all lanes; the others only as marks at the bottom
_THROUGH = ("error", "warn", "finding", "start", "lr")
_LINE, _BAND, _GRID, _TEXT = "#24508f", "#9dbbe3", "#e3e6ea", "#222222"


def svg(timeline: Timeline) -> str:
    """The whole picture; text in it is escaped, nothing is loaded from elsewhere."""
    bottom = _TOP + len(timeline.lanes) * (_LANE + _GAP)
    kinds = [
        kind for kind in KINDS if any(_inside(timeline.axis, one) for one in timeline.happened if one.kind == kind)
    ]
    listed = [one for one in timeline.near() if _inside(timeline.axis, one)][:12]
    height = bottom + 24 + _MARK * len(kinds) + (26 + 17 * len(listed) if listed else 0) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' font-family="system-ui, Segoe UI, Helvetica, Arial, Noto Sans CJK SC, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 24, timeline.title, size=14, weight="600", most=120),
    ]
    parts += _grid(timeline, bottom)
    parts += _through(timeline, bottom)
    for place, lane in enumerate(timeline.lanes):
        parts += _lane(lane, timeline.axis, _TOP + place * (_LANE + _GAP))
    parts += _marks(timeline, kinds, bottom + 34)
    top = bottom + 24 + _MARK * len(kinds) + 26
    for place, one in enumerate(listed):
        parts.append(_text(16, top + 17 * place, str(one.step), colour=_COLOUR[one.kind], weight="600"))
        parts.append(_text(70, top + 17 * place, f"{one.who}: {said(one)}", most=150))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(axis: Axis, step: float) -> float:
    span = max(axis.last - axis.first, 1)
    return _LEFT + (step - axis.first) / span * (_WIDTH - _LEFT - _RIGHT)


def _grid(timeline: Timeline, bottom: int) -> list[str]:
    """Steps along the bottom, with lines through the lanes."""
    axis = timeline.axis
    parts = []
    ticks = [int(tick) for tick in Values(axis.first, axis.last).ticks(8) if tick == int(tick)]
    for step in ticks or [axis.first]:
        x = _x(axis, step)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{_GRID}"/>')
        parts.append(_text(x, bottom + 14, f"{step:,}", anchor="middle", colour="#666666"))
    if timeline.around is not None:
        x = _x(axis, timeline.around)
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 10}" x2="{x:.1f}" y2="{bottom}" stroke="#000000" stroke-dasharray="3 3"/>'
        )
        parts.append(_text(x, _TOP - 14, text("timeline.around", step=timeline.around), anchor="middle", weight="600"))
    return parts


def _through(timeline: Timeline, bottom: int) -> list[str]:
    parts = []
    for one in timeline.happened:
        if one.kind not in _THROUGH or not _inside(timeline.axis, one):
            continue
        x, colour = _x(timeline.axis, max(one.step, timeline.axis.first)), _COLOUR[one.kind]
        if one.until is not None and one.until > one.step:
            wide = _x(timeline.axis, min(one.until, timeline.axis.last)) - x
            box = f'x="{x:.1f}" y="{_TOP - 6}" width="{wide:.1f}" height="{bottom - _TOP + 6}"'
            parts.append(f'<rect {box} fill="{colour}" opacity="0.08"/>')
        line = f'x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}"'
        title = escape(text("alerts.line", step=one.step, name=one.who, said=said(one)))
        parts.append(f'<line {line} stroke="{colour}" opacity="0.7"><title>{title}</title></line>')
    return parts


def _lane(lane: Lane, axis: Axis, top: int) -> list[str]:
    """A band from the lowest to the highest value of each piece, the mean as a line; a cross for what is not finite."""
    wide = _WIDTH - _LEFT - _RIGHT
    parts = [
        f'<rect x="{_LEFT}" y="{top}" width="{wide}" height="{_LANE}" fill="none" stroke="{_GRID}"/>',
        _text(16, top + _LANE / 2 + 4, lane.name, weight="600"),
        _text(_LEFT - 8, top + 11, _number(lane.high), anchor="end", colour="#666666"),
        _text(_LEFT - 8, top + _LANE, _number(lane.low), anchor="end", colour="#666666"),
    ]
    if lane.log:
        parts.append(_text(16, top + _LANE / 2 + 20, text("timeline.logarithmic"), colour="#666666"))
    for stretch in _stretches(lane):
        drawn = [((axis.start(place) + axis.start(place + 1) - 1) / 2, piece) for place, piece in stretch]
        ups = [(_x(axis, step), _y(lane, piece.high, top)) for step, piece in drawn]
        downs = [(_x(axis, step), _y(lane, piece.low, top)) for step, piece in drawn]
        if any(abs(a[1] - b[1]) > 0.5 for a, b in zip(ups, downs, strict=True)):
            parts.append(f'<polygon points="{_points(ups + downs[::-1])}" fill="{_BAND}" opacity="0.6"/>')
        line = [(_x(axis, step), _y(lane, piece.mean, top)) for step, piece in drawn]
        if len(line) == 1:
            parts.append(f'<circle cx="{line[0][0]:.1f}" cy="{line[0][1]:.1f}" r="2.5" fill="{_LINE}"/>')
        else:
            parts.append(f'<polyline points="{_points(line)}" fill="none" stroke="{_LINE}" stroke-width="1.3"/>')
    for place, piece in enumerate(lane.pieces):
        if piece is not None and piece.bad:
            x = _x(axis, axis.start(place))
            parts.append(_text(x, top + 12, "×", anchor="middle", colour=_COLOUR["error"], weight="700"))
    return parts


def _stretches(lane: Lane) -> list[list]:
    """Pieces with finite values that may be joined by a line: a sparse metric (evaluations) is joined across gaps."""
    there = [
        (place, piece) for place, piece in enumerate(lane.pieces) if piece is not None and math.isfinite(piece.mean)
    ]
    broken = {place for place, piece in enumerate(lane.pieces) if piece is not None and not math.isfinite(piece.mean)}
    stretches: list[list] = []
    for place, piece in there:
        last = stretches[-1][-1][0] if stretches else None
        if last is None or any(between in broken for between in range(last, place)):
            stretches.append([])
        stretches[-1].append((place, piece))
    return stretches


def _marks(timeline: Timeline, kinds: list[str], top: int) -> list[str]:
    """A row of dots for each kind, with its name: the legend too."""
    parts = []
    for place, kind in enumerate(kinds):
        y = top + place * _MARK
        inside = [one for one in timeline.happened if one.kind == kind and _inside(timeline.axis, one)]
        parts.append(
            _text(16, y + 4, f"{text(f'timeline.kind.{kind}')} ({len(inside)})", colour=_COLOUR[kind], weight="600")
        )
        for one in inside[:400]:
            x = _x(timeline.axis, max(one.step, timeline.axis.first))
            title = escape(text("alerts.line", step=one.step, name=one.who, said=said(one)))
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{_COLOUR[kind]}"><title>{title}</title></circle>'
            )
    return parts


def _inside(axis: Axis, one: Happening) -> bool:
    return one.step <= axis.last and (one.until if one.until is not None else one.step) >= axis.first - 1


def _y(lane: Lane, value: float, top: int) -> float:
    return top + _LANE - 3 - lane.height(value) * (_LANE - 6)


def _points(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _text(x: float, y: float, words: str, *, anchor="start", colour=_TEXT, weight="400", size=12, most=0) -> str:
    shown = _cut(words, most) if most else words
    style = f'text-anchor="{anchor}" fill="{colour}" font-weight="{weight}" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(shown)}</text>'


def _cut(words: str, most: int) -> str:
    """At most so many cells: a Chinese character is as wide as two others."""
    if cells(words) <= most:
        return words
    while cells(words) > most - 1:
        words = words[:-1]
    return words + "…"
