"""The estimate for a person: components with their formulas, the card beside it, and what to change."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .against import Comparison
from .estimate import Estimate
from .remedies import Remedy
from .room import CLOSE, FITS, TOO_LARGE, UNKNOWN, Room

_COLOUR = {FITS: "green", CLOSE: "yellow", TOO_LARGE: "bold red", UNKNOWN: "bold red"}


def show(estimate: Estimate, room: Room, cures: list[Remedy], compared: list[Comparison], console: Console) -> None:
    """Print all of it."""
    verdict = room.judge(estimate)
    span = f"{estimate.low_gib:.1f} to {estimate.high_gib:.1f}"
    least = "" if estimate.complete else "at least "
    needs = f"needs {least}{estimate.total_gib:.1f} GiB ({span}), {room.free_gib:.1f} are free"
    console.print(Text("memory: ") + Text(verdict.upper(), style=_COLOUR[verdict]) + Text(f"  {needs}"))
    trained = f"{estimate.parameters:,} parameters, {estimate.trainable:,} of them trained"
    console.print(Text(f"{trained}; {estimate.tokens:,} tokens in one forward pass"))
    table = Table(box=None, pad_edge=False)
    table.add_column("component", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("how", style="dim")
    for line in estimate.lines:
        table.add_row(line.name, f"{line.gib:.2f}", Text(line.formula))
    moment = f"at the highest moment of a step: {estimate.moment}"
    table.add_row(Text("total", style="bold"), Text(f"{estimate.total_gib:.2f}", style="bold"), Text(moment))
    console.print(table)
    console.print(Text(_card(room)))
    if not compared:
        console.print(
            Text("an estimate, nothing is measured: --against DIR compares it with a run on a GPU", style="dim")
        )
    for one in compared:
        row = f" (longest row {one.tokens} tokens)" if one.tokens else ""
        console.print(Text("measured: ", style="bold") + Text(f"{one}{row}"))
    for check in estimate.checked:
        text = f"cross-check: {check['what']}: a formula by hand gives {check['off']:+.1%} against the count"
        console.print(Text(text, style="dim"))
    for note in estimate.notes:
        console.print(Text("note: ", style="bold") + Text(note))
    if cures:
        console.print(Text("what to change, in this order:", style="bold"))
        for number, cure in enumerate(cures, 1):
            keys = ", ".join(f"{key}: {_yaml(value)}" for key, value in cure.change.items())
            console.print(Text(f"  {number}. {cure.text}"))
            mark = "fits" if cure.fits else "not yet enough"
            effect = f"     saves {cure.saves_gib:.2f} GiB -> {cure.total_gib:.2f} ({mark})" if keys else f"     {mark}"
            console.print(Text(effect + (f"   {keys}" if keys else ""), style="green" if cure.fits else ""))
    elif verdict == TOO_LARGE:
        console.print(Text("no change of keys that is known here saves anything: a smaller model or a larger card"))


def _card(room: Room) -> str:
    text = f"card: {room.card_gib:.1f} GiB ({room.card_source})"
    text += f" - {room.others_gib:.1f} held by others ({room.others_source})"
    return f"{text} = {room.free_gib:.1f} free"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
