"""The three gates on one screen: green or red, the failing check with its number, the wanted number and the cure."""

import re

from rich.console import Console
from rich.text import Text

from .gates import Preflight
from .result import ERROR, FAIL, PASS, SKIPPED, WARN
from .wish import GATES

_WORD = {PASS: "GREEN", FAIL: "RED", ERROR: "RED", SKIPPED: "SKIPPED"}
_STYLE = {PASS: "bold green", FAIL: "bold red", ERROR: "bold red", SKIPPED: "bold yellow"}
_MARK = {PASS: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "red"), ERROR: ("?", "red"), SKIPPED: ("-", "dim")}
_TITLE = {
    "baseline": "the untuned base model is scored",
    "mask": "the right tokens are in the loss",
    "smoke": "ten steps went through everything",
}

#: checks whose numbers are shown even when they pass
_LEADS = ("layers", "share", "vram_peak", "loss_moves", "checkpoint_loads")


def show(found: Preflight, command: str, console: Console, every: bool = False) -> None:
    """Print it.

    Args:
        command: what starts the training when all is green.
        every: show the checks that passed or do not apply one by one, too.
    """
    for number, gate in enumerate(found.gates, 1):
        word, style = _WORD[gate["status"]], _STYLE[gate["status"]]
        title = {FAIL: "wanted: ", ERROR: "could not be judged; wanted: "}.get(gate["status"], "") + _TITLE[
            gate["name"]
        ]
        place = GATES.index(gate["name"]) + 1
        line = Text(f" {place} {gate['name']:<9}") + Text(f"{word:<8}", style=style)
        console.print(Text("\n" if number > 1 else "") + line + Text(title), soft_wrap=True)
        _show_checks(gate, console, every)
        for note in found.notes.get(gate["name"], ()):
            _line("i", "dim", note, console)
        for cure in gate["fix"].splitlines():
            _line("→", "bold", cure, console)
    console.print()
    console.print(_verdict(found, command), soft_wrap=True)


def _show_checks(gate: dict, console: Console, every: bool) -> None:
    quiet = [] if every else [c for c in gate["checks"] if c["status"] in (PASS, SKIPPED) and not _leads(c)]
    for status in (FAIL, ERROR, WARN, PASS, SKIPPED):
        for check in gate["checks"]:
            if check["status"] == status and check not in quiet:
                _line(*_MARK[status], f"{check['name']}: {check['detail']}{_wanted(check)}", console)
    passed = [check["name"] for check in quiet if check["status"] == PASS]
    if passed:
        _line(*_MARK[PASS], f"{len(passed)} more in order: {', '.join(passed)}", console)
    skipped: dict[str, list[str]] = {}
    for check in quiet:
        if check["status"] == SKIPPED:
            skipped.setdefault(check["detail"], []).append(check["name"])
    for detail, names in skipped.items():
        _line(*_MARK[SKIPPED], f"{', '.join(names)}: {detail}", console)


def _leads(check: dict) -> bool:
    return check["status"] == PASS and check["name"] in _LEADS


def _wanted(check: dict) -> str:
    """The two numbers, where the line for people does not hold them already."""
    if check["status"] not in (FAIL, ERROR) or check["want"] is None:
        return ""
    value, want = "" if check["value"] is None else _number(check["value"]), _number(check["want"])
    parts = [f"{name} {text}" for name, text in (("is", value), ("wanted", want)) if not _says(check["detail"], text)]
    return f" ({', '.join(parts)})" if parts else ""


def _says(detail: str, text: str) -> bool:
    """Does the line hold it as a word of its own, and not as a part of another number?"""
    return re.search(rf"(?<![\w.]){re.escape(text)}(?!\w|\.\d)", detail) is not None


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(x, (int, float)) for x in value):
        return f"{value[0]:g} to {value[1]:g}"
    return str(value)


def _line(mark: str, style: str, text: str, console: Console) -> None:
    """A mark and its text; wrapped lines stand under the text."""
    width = max(20, console.width - 6)
    lines = Text(text).wrap(console, width)
    for number, piece in enumerate(lines):
        lead = Text(f"   {mark} ", style=style) if number == 0 else Text("     ")
        console.print(lead + piece, soft_wrap=True)


def _verdict(found: Preflight, command: str) -> Text:
    red = [gate["name"] for gate in found.gates if gate["status"] in (FAIL, ERROR)]
    if red:
        order = f"; the order of the gates is fixed, then {', '.join(red[1:])}" if red[1:] else ""
        return Text("not ready: ", style="bold red") + Text(f"{red[0]} first{order}")
    missing = [name for name in GATES if name not in [gate["name"] for gate in found.gates]]
    if missing:
        return Text("green so far; ", style="bold green") + Text(f"not asked: {', '.join(missing)}")
    return Text("ready: ", style="bold green") + Text(command)
