"""A timeline for a person at a terminal: a sparkline for each metric, rows of marks, what happened, the numbers."""

import math
import textwrap

from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from .beside import Beside
from .happened import KINDS, MARKS, WORDS, Happening
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
        text, place = f"v{around}", axis.piece(around)
        free = line[place : place + len(text)]
        line[place : place + (len(text) if free == [" "] * len(text) else 1)] = text if len(free) == len(text) else "v"
    return Text(f"{'step':<{LABEL}} {''.join(line)[: axis.pieces]}", style="dim")


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
    low_high = "not finite" if math.isnan(lane.low) else f"{number(lane.low)}..{number(lane.high)}"
    return Text(f"{name:<{LABEL}} {''.join(drawn)} {low_high}{' log' if lane.log else ''}")


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
    return Text(f"{WORDS[kind]:<{LABEL}} {drawn} {sum(counts)}", style=_COLOUR.get(kind, "dim"))


def _numbers(timeline: Timeline, console: Console) -> None:
    """The metrics at the step, beside what they were."""
    head = f"at step {timeline.around}"
    console.print(Text(f"{head:<{LABEL}} {'before':>10} {'at':>10} {'after':>10} {'z':>7}", style="bold"))
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
        console.print(Text("no events here" if timeline.happened else "no events in this log", style="dim"))
    for one in close[:_LISTED]:
        _one(one, console, width)
    more = len(close) - _LISTED
    if more > 0:
        console.print(Text(f"{more} more; --around STEP shows those near a step, --json all", style="dim"))


def _one(one: Happening, console: Console, width: int) -> None:
    span = f"{one.step}" if one.until is None or one.until == one.step else f"{one.step}-{one.until}"
    head = f"{span:>9} {MARKS[one.kind]} "
    text = visible(f"{one.who}: {one.text or one.title}")
    lines = textwrap.wrap(text, max(width - len(head), 20), max_lines=_LINES, placeholder=" ...") or [""]
    for place, line in enumerate(lines):
        console.print(Text((head if place == 0 else " " * len(head)) + line, style=_COLOUR.get(one.kind, "")))
