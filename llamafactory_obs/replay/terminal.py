"""A replay for a person at a terminal of 80 columns: the verdict, the numbers beside ordinary ones, samples, texts."""

import math

from rich.console import Console
from rich.text import Text

from .. import texts
from ..preflight.mask.terminal import shortened
from ..preflight.mask.worst import Piece
from ..texts.sentences import sentence
from ..texts.wrap import cells, labelled, padded, right
from .ordinary import Judged
from .rebuilt import EXACT, names_of
from .report import DATA, NOT_DATA, UNCLEAR, Report
from .show import Shown, Stretch
from .verdict import number

_COLOUR = {DATA: "bold red", NOT_DATA: "bold green", UNCLEAR: "bold yellow"}
_ORDER = ("loss", "recorded_loss", "grad_norm", "recorded_grad_norm", "tokens", "supervised_ratio", "longest")
#: samples listed; the others are counted
_LISTED = 12


def show(report: Report, console: Console) -> None:
    """Print all of it."""
    for line in labelled("", report.title):
        console.print(Text(line, style=_COLOUR[report.verdict]))
    blank = " " * cells(texts.text("replay.label.batch"))
    if report.weights is not None:
        _say(console, texts.text("replay.label.weights"), report.weights.distance(report.step))
        _say(console, blank, report.setting)
    total = len(report.batch.samples)
    rebuilt = "; ".join(f"{count} {texts.text(f'replay.status.{status}')}" for status, count in report.statuses.items())
    samples = texts.text("replay.sample" if total == 1 else "replay.samples", count=total, rebuilt=rebuilt)
    _say(console, texts.text("replay.label.batch"), samples)
    if report.rebuilt_loss:
        _say(console, blank, report.rebuilt_loss)
    for change in report.changes:
        _say(console, blank, change)
    if report.weights is not None:
        for passed_over in report.weights.passed_over:
            _say(console, texts.text("replay.label.not_used"), passed_over)
    _numbers(report, console)
    _samples(report, console)
    for title, lines in (
        (texts.text("replay.for_data"), report.for_data),
        (texts.text("replay.against_data"), report.against_data),
        (texts.text("replay.limits"), report.limits),
    ):
        if lines:
            console.print(Text(f"\n{title}", style="bold"))
        for line in lines:
            _say(console, "  - ", sentence(line))
    console.print()
    _say(console, texts.text("replay.label.advice"), report.advice)
    for one in report.texts:
        _text(one, console)


def _numbers(report: Report, console: Console) -> None:
    names = [*_ORDER, "altered_ratio"]
    rows = [(name, report.compared.get(name)) for name in names if getattr(report.figures, name) is not None]
    if report.figures.altered_ratio == 0 and all(one.altered_ratio == 0 for one in report.ordinary):
        rows = [row for row in rows if row[0] != "altered_ratio"]
    count = len(report.ordinary)
    head = right(texts.text("replay.column.batch"), 10)
    ordinary = padded(texts.text("replay.column.ordinary", count=count), 32)
    console.print(Text(f"\n{'':24}{head}   {ordinary}{'z':>8}", style="bold"))
    for name, judged in rows:
        value = number(getattr(report.figures, name))
        beside = "-"
        if judged is not None:
            span = {"median": number(judged.median), "low": number(judged.low), "high": number(judged.high)}
            beside = texts.text("replay.beside", **span)
        line = f"{padded(texts.text(f'replay.name.{name}'), 24)}{value:>10}   {padded(beside, 32)}{_z(judged):>8}"
        console.print(Text(line.rstrip(), style="red" if judged is not None and judged.out else ""))


def _z(judged: Judged | None) -> str:
    if judged is None:
        return "-"
    return f"{judged.z:.1f}" if math.isfinite(judged.z) else "-"


def _samples(report: Report, console: Console) -> None:
    """The samples by their loss, the worst first; those that carry it have a star."""
    samples, carriers = report.batch.samples, report.carriers
    order = list(range(len(samples)))
    alone = carriers is not None and any(part.loss_without is not None for part in carriers.parts)
    head = ""
    if carriers is not None:
        order.sort(key=lambda i: (not carriers.parts[i].carries, -(carriers.parts[i].loss or 0.0)))
        head = f"{right(texts.text('replay.column.loss'), 8)}{right(texts.text('replay.column.rank'), 8)}{'z':>7}"
    head += right(texts.text("replay.column.tokens"), 8) + right(texts.text("replay.column.share"), 6)
    head += texts.text("replay.column.without") if alone else ""
    head += f"  {texts.text('replay.column.sample')}"
    console.print(Text(f"\n{head}", style="bold"))
    for i in order[:_LISTED]:
        logged = samples[i].logged
        line, style = f"{logged.tokens:>8}{logged.supervised / max(logged.tokens, 1):>6.2f}", ""
        if carriers is not None:
            part = carriers.parts[i]
            rank = "-" if part.loss_rank is None else f"{part.loss_rank}/{report.compared_samples}"
            without = f"{number(part.loss_without):>12}{number(part.grad_norm_without):>11}" if alone else ""
            mark = "*" if part.carries else " "
            line = f"{mark}{number(part.loss):>7}{rank:>8}{_z(part.judged):>7}{line}{without}"
            style = "red" if part.carries else ""
        console.print(Text(f"{line}  {_what(i, report)}", style=style))
    if len(order) > _LISTED:
        console.print(texts.text("replay.more", count=len(order) - _LISTED))


def _what(number: int, report: Report) -> str:
    """Where the sample comes from (of a packed one what stands out in it), and what is wrong with it."""
    sample = report.batch.samples[number]
    sources = sample.sources if report.carriers is None else report.carriers.parts[number].sources
    words = [names_of(sources, 3), f"rank {sample.rank}" if len(report.batch.ranks) > 1 else ""]
    if sample.altered:
        words.append(texts.text("replay.wrong", count=sample.altered))
    elif sample.status != EXACT:
        words.append(texts.text(f"replay.short_status.{sample.status}"))
    return ", ".join(filter(None, words))


def _text(one: Shown, console: Console) -> None:
    colours = console.is_terminal
    said = texts.text("replay.colours" if colours else "replay.marks")
    console.print(Text(f"\n{one.sample.name}", style="bold") + Text(f" ({said})"))
    line = Text()
    for stretch in one.stretches:
        _paint(line, stretch, colours)
    console.print(line)


def _paint(line: Text, stretch: Stretch, colours: bool) -> None:
    text = _short(stretch.text)
    if stretch.taught:
        text = texts.text("replay.taught", text=text, taught=_short(stretch.taught))
    if colours:
        line.append(text, style="white on red" if stretch.taught else "green" if stretch.in_loss else "dim")
    else:
        line.append(f"[!{text}!]" if stretch.taught else f"[[{text}]]" if stretch.in_loss else text)


def _short(text: str) -> str:
    return shortened(Piece("", text, 0, False, False))


def _say(console: Console, label: str, text: str) -> None:
    for line in labelled(label, text):
        console.print(Text(line))
