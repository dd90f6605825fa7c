"""The three gates on one screen: green or red, the failing check with its number, the wanted number and the cure."""

import re

from rich.console import Console
from rich.text import Text

from ..texts import text
from ..texts.sentences import sentence
from ..texts.wrap import padded, wrapped
from .gates import Preflight
from .result import ERROR, FAIL, PASS, SKIPPED, WARN
from .wish import GATES

_STYLE = {PASS: "bold green", FAIL: "bold red", ERROR: "bold red", SKIPPED: "bold yellow"}
_MARK = {PASS: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "red"), ERROR: ("?", "red"), SKIPPED: ("-", "dim")}

#: checks whose numbers are shown even when they pass
_LEADS = ("layers", "share", "vram_peak", "loss_moves", "checkpoint_loads")


def show(found: Preflight, command: str, console: Console, every: bool = False) -> None:
    """Print it.

    Args:
        command: what starts the training when all is green.
        every: show the checks that passed or do not apply one by one, too.
    """
    for number, gate in enumerate(found.gates, 1):
        status, place = gate["status"], GATES.index(gate["name"]) + 1
        title = text(f"preflight.title.{gate['name']}")
        if status in (FAIL, ERROR):
            title = text(f"preflight.not.{status}", title=title)
        word = padded(text(f"preflight.word.{status}"), 8)
        line = Text(f" {place} {gate['name']:<9}") + Text(word, style=_STYLE[status])
        console.print(Text("\n" if number > 1 else "") + line + Text(title), soft_wrap=True)
        _show_checks(gate, console, every)
        for note in found.notes.get(gate["name"], ()):
            _line("i", "dim", sentence(note), console)
        for cure in gate["fix"].splitlines():
            _line("→", "bold", cure, console)
    console.print()
    console.print(_verdict(found, command), soft_wrap=True)


def _show_checks(gate: dict, console: Console, every: bool) -> None:
    quiet = [] if every else [c for c in gate["checks"] if c["status"] in (PASS, SKIPPED) and not _leads(c)]
    for status in (FAIL, ERROR, WARN, PASS, SKIPPED):
        for check in gate["checks"]:
            if check["status"] == status and check not in quiet:
                _line(*_MARK[status], _named([check["name"]], check["detail"] + _wanted(check)), console)
    passed = [check["name"] for check in quiet if check["status"] == PASS]
    if passed:
        _line(*_MARK[PASS], text("preflight.more", count=len(passed), names=", ".join(passed)), console)
    skipped: dict[str, list[str]] = {}
    for check in quiet:
        if check["status"] == SKIPPED:
            skipped.setdefault(check["detail"], []).append(check["name"])
    for detail, names in skipped.items():
        _line(*_MARK[SKIPPED], _named(names, detail), console)


def _leads(check: dict) -> bool:
    return check["status"] == PASS and check["name"] in _LEADS


def _wanted(check: dict) -> str:
    """The two numbers, where the line for people does not hold them already."""
    if check["status"] not in (FAIL, ERROR) or check["want"] is None:
        return ""
    value, want = "" if check["value"] is None else _number(check["value"]), _number(check["want"])
    numbers = (("preflight.is", value), ("preflight.wanted", want))
    parts = [text(key, number=number) for key, number in numbers if not _says(check["detail"], number)]
    return text("preflight.numbers", numbers=text("preflight.comma").join(parts)) if parts else ""


def _named(names: list[str], said: str) -> str:
    return text("preflight.check", names=", ".join(names), said=said)


def _says(detail: str, number: str) -> bool:
    """Does the line hold it as a word of its own, and not as a part of another number?"""
    return re.search(rf"(?<![\w.]){re.escape(number)}(?!\w|\.\d)", detail) is not None


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(x, (int, float)) for x in value):
        return text("preflight.range", low=value[0], high=value[1])
    return sentence(str(value))


def _line(mark: str, style: str, said: str, console: Console) -> None:
    """A mark and its text; wrapped lines stand under the text."""
    width = max(20, console.width - 6)
    for number, piece in enumerate(wrapped(said, width)):
        lead = Text(f"   {mark} ", style=style) if number == 0 else Text("     ")
        console.print(lead + Text(piece), soft_wrap=True)


def _verdict(found: Preflight, command: str) -> Text:
    red = [gate["name"] for gate in found.gates if gate["status"] in (FAIL, ERROR)]
    if red:
        order = text("preflight.then", names=", ".join(red[1:])) if red[1:] else ""
        first = text("preflight.first", name=red[0]) + order
        return Text(text("preflight.not_ready"), style="bold red") + Text(first)
    missing = [name for name in GATES if name not in [gate["name"] for gate in found.gates]]
    if missing:
        not_asked = text("preflight.not_asked", names=", ".join(missing))
        return Text(text("preflight.so_far"), style="bold green") + Text(not_asked)
    return Text(text("preflight.ready"), style="bold green") + Text(command)
