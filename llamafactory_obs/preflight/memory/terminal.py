"""The estimate for a person: components with their formulas, the card beside it, and what to change."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ... import texts
from ...texts.sentences import sentence
from .against import Comparison
from .estimate import Estimate
from .remedies import Remedy
from .room import CLOSE, FITS, TOO_LARGE, UNKNOWN, Room

_COLOUR = {FITS: "green", CLOSE: "yellow", TOO_LARGE: "bold red", UNKNOWN: "bold red"}
_VERDICTS = {FITS: "fits", CLOSE: "close", TOO_LARGE: "too_large", UNKNOWN: "unknown"}


def show(estimate: Estimate, room: Room, cures: list[Remedy], compared: list[Comparison], console: Console) -> None:
    """Print all of it."""
    verdict = room.judge(estimate)
    span = texts.text("memory.span", low=estimate.low_gib, high=estimate.high_gib)
    least = "" if estimate.complete else texts.text("memory.least")
    needs = texts.text("memory.needs", least=least, total=estimate.total_gib, span=span, free=room.free_gib)
    console.print(
        Text(texts.text("memory.head"))
        + Text(texts.text(f"memory.verdict.{_VERDICTS[verdict]}"), style=_COLOUR[verdict])
        + Text(f"  {needs}")
    )
    trained = texts.text("memory.parameters", all=estimate.parameters, trained=estimate.trainable)
    console.print(Text(texts.text("memory.tokens", trained=trained, tokens=estimate.tokens)))
    table = Table(box=None, pad_edge=False)
    table.add_column(texts.text("memory.component"), no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column(texts.text("memory.how"), style="dim")
    names = texts.texts("memory", texts.language())
    for line in estimate.lines:
        table.add_row(names.get(f"line.{line.name}", line.name), f"{line.gib:.2f}", Text(line.formula))
    moment = texts.text("memory.moment", moment=estimate.moment)
    table.add_row(
        Text(texts.text("memory.total"), style="bold"), Text(f"{estimate.total_gib:.2f}", style="bold"), Text(moment)
    )
    console.print(table)
    console.print(Text(_card(room)))
    if not compared:
        console.print(Text(texts.text("memory.estimate"), style="dim"))
    for one in compared:
        row = texts.text("memory.longest", tokens=one.tokens) if one.tokens else ""
        console.print(Text(texts.text("memory.measured"), style="bold") + Text(f"{one}{row}"))
    for check in estimate.checked:
        text = texts.text("memory.cross_check", what=check["what"], off=check["off"])
        console.print(Text(text, style="dim"))
    for note in estimate.notes:
        console.print(Text(texts.text("memory.note"), style="bold") + Text(sentence(note)))
    if cures:
        console.print(Text(texts.text("memory.change"), style="bold"))
        for number, cure in enumerate(cures, 1):
            keys = ", ".join(f"{key}: {_yaml(value)}" for key, value in cure.change.items())
            console.print(Text(f"  {number}. {cure.text}"))
            mark = texts.text("memory.fits") if cure.fits else texts.text("memory.not_enough")
            effect = (
                texts.text("memory.saves", saves=cure.saves_gib, total=cure.total_gib, mark=mark)
                if keys
                else f"     {mark}"
            )
            console.print(Text(effect + (f"   {keys}" if keys else ""), style="green" if cure.fits else ""))
    elif verdict == TOO_LARGE:
        console.print(Text(texts.text("memory.nothing")))


def _card(room: Room) -> str:
    text = texts.text("memory.card", gib=room.card_gib, source=room.card_source)
    text += texts.text("memory.others", gib=room.others_gib, source=room.others_source)
    return texts.text("memory.free", text=text, free=room.free_gib)


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
