"""The mask for a person at a terminal: numbers, checks, and the worst rows with what is in the loss in colour."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ... import texts
from ...texts.wrap import cells
from ..result import ERROR, FAIL, PASS, SKIPPED, WARN
from .gate import MaskReport
from .worst import Piece, Row

_COLOUR = {PASS: "green", WARN: "yellow", FAIL: "bold red", ERROR: "bold red", SKIPPED: "dim"}
#: of the table; the words stand in the texts
COLUMNS = ("split", "data_set", "rows", "dropped", "tokens", "in_loss", "share", "min", "median", "max", "must")
#: a longer stretch is shown by its two ends
_SHOWN = 400


def show(report: MaskReport, console: Console) -> None:
    """Print all of it."""
    gate = report.gate()
    console.print(f"mask: [{_COLOUR[gate['status']]}]{_word(gate['status']).upper()}[/]")
    if report.datasets:
        console.print(_table(report))
    for check in report.checks:
        word = _word(check.status)
        mark = Text(" " * max(7 - cells(word), 0) + f"{word} ", style=_COLOUR[check.status])
        console.print(mark + Text(texts.text("preflight.check", names=check.name, said=check.detail)))
    for cause in report.causes:
        console.print(Text(texts.text("mask.cause"), style="bold") + Text(cause))
    bad = sorted((c for c in report.checks if c.status in (FAIL, ERROR)), key=lambda c: c.confirmable)
    fixes = [check.fix for check in bad if check.fix]
    for fix in dict.fromkeys(fixes):
        console.print(Text(texts.text("mask.fix"), style="bold") + Text(fix))
    if report.note:
        console.print(Text(report.note))
    if report.confirm:
        console.print(Text(texts.text("mask.confirm"), style="bold") + Text(report.confirm))
    if report.worst:
        console.print(texts.text("mask.worst"))
    for row in report.worst:
        _show_row(row, console)


def _word(status: str) -> str:
    return texts.text(f"mask.status.{status}")


def _table(report: MaskReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        side = "left" if name in ("split", "data_set") else "right"
        table.add_column(texts.text(f"mask.column.{name}"), justify=side)
    for row in figures(report):
        table.add_row(*map(escape, row))
    return table


def figures(report: MaskReport) -> list[list[str]]:
    """A row for each data set, and where a split has several one for the split; `COLUMNS` says of what."""
    rows = []
    for one in [*report.datasets, *(report.splits if len(report.datasets) > len(report.splits) else [])]:
        shares = [one[key] for key in ("share", "share_min", "share_median", "share_max", "expected_share")]
        counts = [str(one[key]) for key in ("rows", "dropped", "tokens", "supervised")]
        name = texts.text("mask.all") if one["dataset"] is None else one["dataset"]
        rows.append([one["split"], name, *counts, *("-" if share is None else f"{share:.3f}" for share in shares)])
    return rows


def _show_row(row: Row, console: Console) -> None:
    head, faults = heading(row)
    console.print(Text(f"\n{head}", style="bold") + Text(faults, style="red"))
    line = Text()
    role = None
    for piece in row.pieces:
        if piece.role != role and piece.role != "end":
            line.append(f" [{piece.role}] ", style="cyan")
            role = piece.role
        line.append(shortened(piece), style=_style(piece))
    console.print(line, soft_wrap=True)


def heading(row: Row) -> tuple[str, str]:
    """Which row it is and how much of it is in the loss; what is wrong with it, empty where nothing is."""
    share = texts.text("mask.dropped")
    if row.share is not None:
        share = texts.text("mask.of_tokens", share=row.share, tokens=row.tokens)
    head = texts.text("mask.row", split=row.split, data_set=row.dataset, number=row.number, share=share)
    return head, texts.text("mask.faults", faults=texts.text("mask.comma").join(row.faults)) if row.faults else ""


def _style(piece: Piece) -> str:
    if piece.wrong:
        return "white on red"
    return "green" if piece.in_loss else "dim"


def shortened(piece: Piece) -> str:
    """The text, a long one by its two ends with what was left out in numbers."""
    text = piece.text
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return text[:half] + texts.text("mask.left_out", count=len(text) - 2 * half) + text[-half:]
