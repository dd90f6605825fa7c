"""The sheet in the terminal: 80 columns, plain when piped."""

from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from ..diagnosis.result import Diagnosis
from ..logs.curves import Curves
from ..summary import RunSummary
from ..texts.wrap import cells, padded, wrapped
from .curves import BARS, PLAIN_BARS, curves_of
from .sheet import Line, sheet
from .tables import FAILED, tables
from .values import num, t

_WIDTH, _LABEL, _CURVE = 80, 24, 30
#: tables that the terminal shows below the facts
_TABLES = ("probes",)
#: cells for the name of a probe
_NAME = 16
#: probes that it lists
_PROBES = 12


def show(summary: RunSummary, diagnosis: Diagnosis, curves: Curves, out: TextIO) -> None:
    """Print it."""
    console = Console(file=out, highlight=False, soft_wrap=True)
    width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    name = summary.brief.run_name or Path(summary.output_dir).resolve().name
    console.print(Text(visible(t("title", name=name)), style="bold"))
    for key, there in (("so_far", summary.going), ("plain_log", summary.source != "obs")):
        if there:
            for line in wrapped(t(key), width):
                console.print(Text(line, style="yellow"))
    for group in sheet(summary, diagnosis):
        console.print()
        console.print(Text(group.title, style="bold"))
        for line in group.lines:
            _fact(console, line, width)
    bars = BARS if (out.encoding or "").lower().startswith("utf") else PLAIN_BARS
    drawn = curves_of(curves, _CURVE, bars)
    if drawn:
        console.print()
        console.print(Text(t("table.curves"), style="bold"))
    for one in drawn:
        line = f"  {padded(one.name, _LABEL)}{one.bars} {num(one.low)} .. {num(one.high)}"
        console.print(Text(line))
    for table in tables(summary, diagnosis):
        if table.key in _TABLES:
            console.print()
            console.print(Text(table.title, style="bold"))
            _table(console, table.heads, _worth(table.rows), width)


def _fact(console: Console, line: Line, width: int) -> None:
    first = f"  {padded(visible(line.label), _LABEL)}"
    if cells(first) > _LABEL + 2:
        first += "  "
    rows = wrapped(visible(line.value or line.why), width, first, " " * (_LABEL + 2))
    for row in rows:
        console.print(Text(row, style="" if line.value else "dim"))


def _worth(rows: list[list[str]]) -> list[list[str]]:
    """Of many probes those that do not pass everywhere, at the most so many, and the counts."""
    if len(rows) <= _PROBES:
        return rows
    return [row for row in rows[:-1] if FAILED in row[1:]][:_PROBES] + rows[-1:]


def _table(console: Console, heads: list[str], rows: list[list[str]], width: int) -> None:
    """A table that keeps within the width: of many columns the first two and the newest, a long name is cut."""
    every = [[visible(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(cells(row[place]) for row in every) for place in range(len(heads))]
    while len(widths) > 3 and _NAME + sum(widths[1:]) + 2 * len(widths) > width:
        for row in (widths, *every):
            del row[2]
    widths[0] = min(widths[0], max(_NAME, width - sum(widths[1:]) - 2 * len(widths)))
    every = [[_cut(cell, size) for cell, size in zip(row, widths, strict=True)] for row in every]
    for number, row in enumerate(every):
        line = "  " + "  ".join(padded(cell, size) for cell, size in zip(row, widths, strict=True))
        console.print(Text(line.rstrip(), style="dim" if not number else ""))


def _cut(words: str, width: int) -> str:
    if cells(words) <= width:
        return words
    while cells(words) > width - 3:
        words = words[:-1]
    return f"{words}..."
