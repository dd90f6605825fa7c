"""The plan for a person: one screen of 80 columns, in English or Chinese, with or without colour."""

import unicodedata
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..texts import text
from .fate import ORDER
from .plan import CHANGED, DONE, EXACT, MISFIT, NEVER, NONE, WARM, Plan
from .point import GRAVE, INFO, WARN, Point

_COLUMNS = 80
#: in place of a level: a command, whole, so that it can be copied
_COMMAND = "command"
_MARK = {INFO: " ", WARN: "!", GRAVE: "x"}
_COLOUR = {INFO: "", WARN: "yellow", GRAVE: "bold red"}
_HEADS = {
    EXACT: ("exact", "bold green"),
    CHANGED: ("changed", "bold yellow"),
    WARM: ("warm", "bold red"),
    MISFIT: ("misfit", "bold red"),
    DONE: ("done", "bold red"),
    NONE: ("none", "bold red"),
    NEVER: ("never", "bold red"),
}


def show(plan: Plan, out: TextIO) -> None:
    """Print it; the first line is the verdict."""
    console = Console(file=out, highlight=False, soft_wrap=True)
    _head(plan, console)
    console.print()
    _points(console, "stands", plan.stands, marks=False)
    if plan.best is not None and not plan.never:
        _row(console, "from", [(INFO, _best(plan))])
        _row(console, "restored", [(INFO, restored(plan))])
    lost = [point for point in plan.state if point.name.startswith("lost.")]
    _points(console, "lost", lost)
    _points(console, "folder", [point for point in plan.state if point not in lost])
    _points(console, "changed", plan.changes)
    if plan.agreement.same:
        _row(console, "same", [(INFO, agreed(plan))])
    _points(console, "", plan.agreement.points)
    if plan.left is not None:
        points = plan.left.points()
        if plan.left.steps:
            _row(console, "left", [(INFO, left(plan))])
            _points(console, "", points)
        else:
            _points(console, "left", points)
    _points(console, "tracker", plan.trackers.points)
    if plan.launch is not None:
        console.print()
        console.print(Text(_label("command").rstrip(), style="bold"))
        for line in plan.launch.lines:  # whole, so that it can be copied
            console.print(Text(f"  {line}"), no_wrap=True)


def _head(plan: Plan, console: Console) -> None:
    name, style = _HEADS[plan.verdict]
    values = {"stage": plan.stage}
    if plan.best is not None:
        values |= {"checkpoint": plan.best.name, "step": plan.best.step}
        if plan.left is not None:
            values |= {"step": plan.left.step, "steps": plan.left.steps, "total": plan.left.total}
    for line in wrapped("", text(f"resume.head.{name}", **values)):
        console.print(Text(line, style=style))


def _best(plan: Plan) -> str:
    one = plan.best
    values = {"checkpoint": one.name, "step": plan.left.step if plan.left else one.step, "what": one.what or one.kind}
    if not one.epoch:
        return text("resume.label.best", **values)
    return text("resume.label.best_epoch", epoch=one.epoch, **values)


def restored(plan: Plan) -> str:
    """The parts that are read, in words."""
    said = []
    for name in ORDER:
        if name not in plan.fate.restored:
            continue
        ranks = sum(part.name == "rng" for part in plan.best.parts)
        key = "rng_ranks" if name == "rng" and ranks > 1 else name
        said.append(text(f"resume.part.{key}", ranks=ranks) if key == "rng_ranks" else text(f"resume.part.{key}"))
    return text("resume.label.and").join(said) or text("resume.label.nothing")


def agreed(plan: Plan) -> str:
    """What agrees, in words."""
    return text("resume.label.and").join(text(f"resume.what.{what}") for what in plan.agreement.same)


def left(plan: Plan) -> str:
    """Steps, epochs and time left, in words."""
    of = plan.left
    said = [text("resume.left.steps", steps=of.steps, total=of.total)]
    if of.epochs is not None:
        said.append(text("resume.left.epochs", epochs=of.epochs))
    if of.seconds is not None:
        slow = of.seconds_per_step >= 1
        key, value = ("per_step", of.seconds_per_step) if slow else ("per_second", 1 / of.seconds_per_step)
        speed = text(f"resume.left.{key}", **{"seconds" if slow else "steps": value})
        said.append(text("resume.left.time", time=duration(of.seconds), speed=speed))
    return text("resume.label.comma").join(said)


def duration(seconds: float) -> str:
    """`42 s`, `12 min`, `5 h 20 min`, `2 d 3 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def _points(console: Console, label: str, points: list[Point], marks: bool = True) -> None:
    rows = []
    for point in points:
        level = point.level if marks or point is not points[0] else INFO
        rows.append((level, point.say()))
        if cure := point.cure():
            rows.append((_COMMAND if point.is_command else None, text("resume.label.do") + cure))
    _row(console, label, rows)


def _row(console: Console, label: str, rows: list[tuple[str | None, str]]) -> None:
    """A label, then one text under the other; `None` for the level: it belongs to the one above,
    and so does `_COMMAND`, which is not broken."""
    for number, (level, said) in enumerate(rows):
        head = _label(label) if label and not number else " " * 14
        below = level in (None, _COMMAND)
        mark = "    " if below else f"{_MARK[level]} "
        style = "" if below else _COLOUR[level]
        indent = " " * (14 + len(mark))
        for at, line in enumerate([indent + said] if level == _COMMAND else wrapped(indent, said)):
            shown = Text(head if not at else " " * 14, style="bold")
            shown.append(mark if not at else " " * len(mark), style=style)
            shown.append(line[14 + len(mark) :], style=style if level == GRAVE else "")
            console.print(shown)


def _label(name: str) -> str:
    said = text(f"resume.label.{name}")
    return said + " " * max(14 - cell_len(said), 1)


def wrapped(indent: str, said: str) -> list[str]:
    """Lines of at most 80 cells; Chinese is broken between any two characters, other words at blanks."""
    room, lines, line = _COLUMNS - len(indent), [], ""
    for word in _pieces(said):
        if line and cell_len(line) + cell_len(word.rstrip()) > room:
            lines.append(line.rstrip())
            line = ""
        line += word if line else word.lstrip()
    return [indent + one for one in [*lines, line.rstrip()]]


def _pieces(said: str) -> list[str]:
    """Where a line may be broken: after a blank and after each wide character, never before closing punctuation."""
    pieces, piece = [], ""
    for at, char in enumerate(said):
        following = said[at + 1 : at + 2]
        closing = bool(following) and unicodedata.category(following) in ("Pe", "Po", "Pf") and cell_len(following) == 2
        piece += char
        wide_next = bool(following) and cell_len(following) == 2
        opening = unicodedata.category(char) in ("Ps", "Pi")
        if (char == " " or cell_len(char) == 2 or wide_next) and not closing and not opening:
            pieces.append(piece)
            piece = ""
    return [*pieces, piece] if piece else pieces
