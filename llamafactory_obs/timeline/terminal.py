"""A timeline for a person at a terminal: a sparkline for each metric, rows of marks, what happened, the numbers."""

import math

from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from ..texts import text
from ..texts.findings import title, told
from ..texts.wrap import cells, padded, wrapped
from .beside import Beside
from .happened import KINDS, MARKS, Happening
from .lanes import Axis, Lane
from .timeline import Timeline

LABEL, RANGE = 21, 17
_BARS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_COLOUR = {"error": "bold red", "warn": "yellow", "finding": "magenta", "start": "cyan", "lr": "blue"}
_LISTED = 30
_LINES = 3


def show(timeline: Timeline, console: Console, width: int) -> None:
    """Print all of it."""
    unicode = (console.encoding or "").lower().startswith("utf")
    console.print(Text(visible(timeline.title), style="bold"))
    console.print(_ruler(timeline.axis, timeline.around))
    for lane in timeline.lanes:
        console.print(_lane(lane, _BARS if unicode else _ASCII))
    for kind in KINDS:
        marks = _marks(timeline, kind)
        if marks is not None:
            console.print(marks)
    if timeline.numbers:
        console.print()
        _numbers(timeline, console)
    console.print()
    _list(timeline, console, width)


def number(value: float | None) -> str:
    """A number in at most 8 characters."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.4g}"


def _ruler(axis: Axis, around: int | None) -> Text:
    """The steps at the ends, and the one that is looked at."""
    line = [" "] * axis.pieces
    left, right = str(axis.first), str(axis.last)
    line[: len(left)] = left
    if axis.pieces > len(left) + len(right) + 1:
        line[-len(right) :] = right
    if around is not None:
        mark, place = f"v{around}", axis.piece(around)
        free = line[place : place + len(mark)]
        line[place : place + (len(mark) if free == [" "] * len(mark) else 1)] = mark if len(free) == len(mark) else "v"
    return Text(f"{padded(text('timeline.step'), LABEL)} {''.join(line)[: axis.pieces]}", style="dim")


def _lane(lane: Lane, bars: str) -> Text:
    drawn = []
    for piece in lane.pieces:
        if piece is None:
            drawn.append(" ")
        elif piece.bad:
            drawn.append("x")
        else:
            drawn.append(bars[min(int(lane.height(lane.value(piece)) * len(bars)), len(bars) - 1)])
    name = visible(lane.name)
    name = name if len(name) <= LABEL else name[: LABEL - 1] + "~"
    low_high = text("timeline.not_finite") if math.isnan(lane.low) else f"{number(lane.low)}..{number(lane.high)}"
    return Text(f"{name:<{LABEL}} {''.join(drawn)} {low_high}{text('timeline.log') if lane.log else ''}")


def _marks(timeline: Timeline, kind: str) -> Text | None:
    """One row of marks; a digit where several fall into one piece."""
    counts = [0] * timeline.axis.pieces
    for one in timeline.happened:
        piece = timeline.axis.piece(one.step) if one.kind == kind else None
        if piece is not None:
            counts[piece] += 1
    if not any(counts):
        return None
    drawn = "".join(" " if not n else MARKS[kind] if n == 1 else str(n) if n < 10 else "+" for n in counts)
    return Text(f"{padded(text(f'timeline.kind.{kind}'), LABEL)} {drawn} {sum(counts)}", style=_COLOUR.get(kind, "dim"))


def _numbers(timeline: Timeline, console: Console) -> None:
    """The metrics at the step, beside what they were."""
    head = padded(text("timeline.at_step", step=timeline.around), LABEL)
    columns = [text(f"timeline.{name}") for name in ("before", "at", "after")]
    line = "".join(" " * (11 - cells(name)) + name for name in columns)
    console.print(Text(f"{head}{line} {'z':>7}", style="bold"))
    for one in timeline.numbers:
        console.print(_number_row(one))


def _number_row(one: Beside) -> Text:
    far = one.z is not None and abs(one.z) >= 5
    z = "-" if one.z is None else f"{one.z:+.1f}" if abs(one.z) < 1000 else f"{one.z:+.0e}"
    name = visible(one.name)[:LABEL]
    line = f"{name:<{LABEL}} {number(one.before):>10} {number(one.at):>10} {number(one.after):>10} {z:>7}"
    return Text(line + ("  <-" if far else ""), style="bold" if far else "")


def _list(timeline: Timeline, console: Console, width: int) -> None:
    """What happened, one paragraph each; the quiet kinds only where one looks at a step."""
    close = timeline.near()
    if not close:
        console.print(Text(text("timeline.none_here" if timeline.happened else "timeline.none"), style="dim"))
    for one in close[:_LISTED]:
        _one(one, console, width)
    more = len(close) - _LISTED
    if more > 0:
        console.print(Text(text("timeline.more", count=more), style="dim"))


def _one(one: Happening, console: Console, width: int) -> None:
    span = f"{one.step}" if one.until is None or one.until == one.step else f"{one.step}-{one.until}"
    head = f"{span:>9} {MARKS[one.kind]} "
    lines = wrapped(visible(f"{one.who}: {said(one)}"), max(width - len(head), 20))
    if len(lines) > _LINES:
        last = lines[_LINES - 1]
        while cells(last) > max(width - len(head), 20) - 4:
            last = last[:-1]
        lines[_LINES - 1 :] = [f"{last} ..."]
    for place, line in enumerate(lines):
        console.print(Text((head if place == 0 else " " * len(head)) + line, style=_COLOUR.get(one.kind, "")))


def said(one: Happening) -> str:
    """What it says; its title where it says nothing."""
    return told(one.title, one.step, one.text, one.evidence) if one.text else title(one.title)
