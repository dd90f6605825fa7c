"""A replay for a person at a terminal of 80 columns: the verdict, the numbers beside ordinary ones, samples, texts."""

import math
import textwrap

from rich.console import Console
from rich.text import Text

from ..preflight.mask.terminal import shortened
from ..preflight.mask.worst import Piece
from .ordinary import Judged
from .rebuilt import EXACT, names_of
from .report import DATA, NOT_DATA, UNCLEAR, Report
from .show import Shown, Stretch
from .verdict import number

_COLUMNS = 80
_COLOUR = {DATA: "bold red", NOT_DATA: "bold green", UNCLEAR: "bold yellow"}
_NAMES = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "recorded_loss": "  in the run",
    "recorded_grad_norm": "  in the run",
    "tokens": "tokens",
    "supervised_ratio": "share in the loss",
    "longest": "longest sample",
    "altered_ratio": "labels not their token",
}
_ORDER = ("loss", "recorded_loss", "grad_norm", "recorded_grad_norm", "tokens", "supervised_ratio", "longest")
_STATUS = {
    "exact": "as trained on",
    "labels_changed": "with labels changed on the way (those of the log are used)",
    "labels_unknown": "with labels changed on the way (not in the log; the data set's are used)",
    "data_changed": "changed in the data since (left out)",
    "not_found": "not in the data any more (left out)",
}
#: samples listed; the others are counted
_LISTED = 12


def show(report: Report, console: Console) -> None:
    """Print all of it."""
    for line in _wrapped("", report.title):
        console.print(Text(line, style=_COLOUR[report.verdict]))
    if report.weights is not None:
        _say(console, "  weights  ", report.weights.distance(report.step))
        _say(console, "           ", report.setting)
    total = len(report.batch.samples)
    rebuilt = "; ".join(f"{count} {_STATUS[status]}" for status, count in report.statuses.items())
    _say(console, "  batch    ", f"{total} sample{'s' * (total != 1)} from the log: {rebuilt}")
    if report.rebuilt_loss:
        _say(console, "           ", report.rebuilt_loss)
    for change in report.changes:
        _say(console, "           ", change)
    if report.weights is not None:
        for passed_over in report.weights.passed_over:
            _say(console, "  not used ", passed_over)
    _numbers(report, console)
    _samples(report, console)
    for title, lines in (
        ("it comes with the data:", report.for_data),
        ("it does not:", report.against_data),
        ("limits:", report.limits),
    ):
        if lines:
            console.print(Text(f"\n{title}", style="bold"))
        for line in lines:
            _say(console, "  - ", line)
    console.print()
    _say(console, "do this: ", report.advice)
    for one in report.texts:
        _text(one, console)


def _numbers(report: Report, console: Console) -> None:
    names = [*_ORDER, "altered_ratio"]
    rows = [(name, report.compared.get(name)) for name in names if getattr(report.figures, name) is not None]
    if report.figures.altered_ratio == 0 and all(one.altered_ratio == 0 for one in report.ordinary):
        rows = [row for row in rows if row[0] != "altered_ratio"]
    count = len(report.ordinary)
    console.print(Text(f"\n{'':24}{'batch':>10}   {f'{count} ordinary: median (range)':32}{'z':>8}", style="bold"))
    for name, judged in rows:
        value = number(getattr(report.figures, name))
        beside = "-" if judged is None else f"{number(judged.median)} ({number(judged.low)} to {number(judged.high)})"
        line = f"{_NAMES[name]:24}{value:>10}   {beside:32}{_z(judged):>8}"
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
        head = f"{'loss':>8}{'rank':>8}{'z':>7}"
    head += f"{'tokens':>8}{'share':>6}{'  loss, norm without it' if alone else ''}  sample"
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
        console.print(f"  and {len(order) - _LISTED} more")


def _what(number: int, report: Report) -> str:
    """Where the sample comes from (of a packed one what stands out in it), and what is wrong with it."""
    sample = report.batch.samples[number]
    sources = sample.sources if report.carriers is None else report.carriers.parts[number].sources
    words = [names_of(sources, 3), f"rank {sample.rank}" if len(report.batch.ranks) > 1 else ""]
    if sample.altered:
        words.append(f"{sample.altered} wrong")
    elif sample.status != EXACT:
        words.append(sample.status.replace("_", " "))
    return ", ".join(filter(None, words))


def _text(one: Shown, console: Console) -> None:
    colours = console.is_terminal
    said = "green: in the loss, red: wrong label" if colours else "[[in the loss]], [!wrong label!]"
    console.print(Text(f"\n{one.sample.name}", style="bold") + Text(f" ({said})"))
    line = Text()
    for stretch in one.stretches:
        _paint(line, stretch, colours)
    console.print(line)


def _paint(line: Text, stretch: Stretch, colours: bool) -> None:
    text = _short(stretch.text)
    if stretch.taught:
        text = f"{text} <- taught here: {_short(stretch.taught)}"
    if colours:
        line.append(text, style="white on red" if stretch.taught else "green" if stretch.in_loss else "dim")
    else:
        line.append(f"[!{text}!]" if stretch.taught else f"[[{text}]]" if stretch.in_loss else text)


def _short(text: str) -> str:
    return shortened(Piece("", text, 0, False, False))


def _say(console: Console, label: str, text: str) -> None:
    for line in _wrapped(label, text):
        console.print(Text(line))


def _wrapped(label: str, text: str) -> list[str]:
    wrapper = textwrap.TextWrapper(
        _COLUMNS, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False
    )
    return wrapper.wrap(text)
