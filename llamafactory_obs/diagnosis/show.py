"""A diagnosis for a person: the verdict first, then why, what to change, and what could not be seen."""

import math
from statistics import median
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from ..continuity.said import BROKEN
from ..continuity.words import in_words
from ..detect import Finding
from ..logs.curves import Curves
from ..texts import language, text
from ..texts.findings import cause_title, title, told
from ..texts.sentences import sentence
from ..texts.wrap import wrapped
from .headline import verdict_in_words
from .result import Cause, Diagnosis
from .verdict import speaks

_STYLES = {"kill": "bold red", "keep": "bold green", "none": "bold yellow"}
#: findings that are told in full
_IN_FULL = 5
_BARS = "▁▂▃▄▅▆▇█"
_BARS_ASCII = "_.-=+*%#"
#: of the evidence, what every finding has and the text says already
_TOLD = {"since", "checks", "checkpoint", "checkpoint_exists", "run", "recovered", "mild", "view", "borders"}
_TOLD |= {"step", "step_before", "epoch", "lr", "loss", "epoch_at_this_step", "lr_at_this_step", "loss_at_this_step"}


def show(curves: Curves, diagnosis: Diagnosis, file: TextIO) -> None:
    """Print all of it, 80 columns wide at most."""
    console = Console(file=file, highlight=False, soft_wrap=False)
    console.width = min(console.width, 80)
    word = text(f"diagnose.action.{diagnosis.action}")
    head = Text(word, style=_STYLES[diagnosis.action]) + Text(f"  {verdict_in_words(diagnosis.verdict)}", style="bold")
    path = visible(diagnosis.path)
    fits = head.cell_len + 2 + cell_len(path) <= console.width
    console.print(head + Text(f"  {path}", style="dim") if fits else head)
    if not fits:
        console.print(Text(path, style="dim"), soft_wrap=True)
    steps = text(
        "diagnose.of_steps" if curves.max_steps else "diagnose.steps", steps=diagnosis.steps, of=curves.max_steps
    )
    rows = text("diagnose.row" if len(curves) == 1 else "diagnose.rows", count=len(curves))
    console.print(Text(text("diagnose.comma").join((diagnosis.source, diagnosis.kind, steps, rows)), style="dim"))
    _curve(console, curves, diagnosis)
    run = max((f.evidence.get("run", 0) for f in diagnosis.findings), default=0)
    grave, names = [], set()  # the first of each name in full, the worst first; the others in one line
    for number, finding in enumerate(diagnosis.findings):
        if speaks(finding, run) and finding.name not in names and len(grave) < _IN_FULL:
            grave.append(number)
            names.add(finding.name)
    if not grave:
        _indented(console, diagnosis.headline, 0)
    for number, finding in enumerate(diagnosis.findings):
        if number in grave:
            _finding(console, finding, diagnosis.causes.get(number, []))
    _others(console, [f for i, f in enumerate(diagnosis.findings) if i not in grave])
    for one in diagnosis.resumes:
        if one.verdict != BROKEN or language() != "en":  # the English finding has all of it
            _indented(console, in_words(one), 0)
    for heading, lines in (
        (text("diagnose.unseen"), diagnosis.unseen),
        (text("diagnose.notes"), list(map(sentence, diagnosis.notes))),
    ):
        if lines:
            console.print(Text(heading, style="bold"))
        for line in lines:
            _indented(console, f"- {line}", 1)


def _finding(console: Console, finding: Finding, causes: list[Cause]) -> None:
    style = {"kill": "red", "keep": "yellow"}.get(finding.action, "")
    since = finding.evidence.get("since", finding.step)
    goes_on = finding.until in (None, since)
    parts = [text("diagnose.at" if goes_on else "diagnose.span", since=since, until=finding.until)]
    parts.append(text(f"diagnose.short_action.{finding.action}"))
    if finding.confidence is not None:
        parts.append(text("diagnose.confidence", confidence=finding.confidence))
    console.print(
        Text(title(finding.name), style=f"bold {style}") + Text(f"  {text('diagnose.comma').join(parts)}", style="dim")
    )
    _indented(console, _said(finding))
    shown = {key: value for key, value in finding.evidence.items() if key not in _TOLD and value is not None}
    if shown:
        numbers = ", ".join(f"{key} {_plain(value)}" for key, value in shown.items())
        _indented(console, text("diagnose.evidence", numbers=numbers), style="dim")
    for cause in causes[:2]:
        why = cause.supports[0] if cause.supports else (cause.next or "")
        if cause.name == "unknown":
            _indented(console, text("diagnose.no_cause", next=cause.next or why))
            break
        _indented(console, text("diagnose.cause", name=cause_title(cause.name), score=cause.score, why=why))
    if finding.suggest:
        _indented(console, text("diagnose.suggest"))
    for key, value in finding.suggest.items():
        _indented(console, f"{key}: {_plain(value)}", 4, "green")


def _said(finding: Finding) -> str:
    return told(finding.name, finding.step, finding.text, finding.evidence, finding.until)


def _others(console: Console, findings: list[Finding]) -> None:
    """What is worth knowing: one line each, the same things together."""
    if not findings:
        return
    console.print(Text(text("diagnose.others"), style="bold"))
    by_name: dict[str, list[Finding]] = {}
    for finding in findings:
        by_name.setdefault(finding.name, []).append(finding)
    for name, same in by_name.items():
        first = _said(same[0]).split(text("diagnose.sentence_end"))[0]
        key = "diagnose.other_times" if len(same) > 1 else "diagnose.other"
        _indented(console, text(key, name=title(name), count=len(same), first=first), 1)


def _curve(console: Console, curves: Curves, diagnosis: Diagnosis) -> None:
    """The loss as one line of bars, log scale where it spans much, and a mark under the gravest finding."""
    steps, losses = curves.points("train/loss")
    width = min(console.width - 2, 72, len(losses))
    if width < 8:
        return
    cells = [losses[i * len(losses) // width : (i + 1) * len(losses) // width] for i in range(width)]
    levels = [median(finite) if (finite := [v for v in cell if math.isfinite(v)]) else None for cell in cells]
    known = [level for level in levels if level is not None]
    if not known:
        return
    low, high = min(known), max(known)
    log = low > 0 and high / low > 20
    scale = math.log if log else float
    bars = _BARS if _can_show(console, _BARS) else _BARS_ASCII
    span = (scale(high) - scale(low)) or 1.0
    line = "".join(
        "!" if level is None else bars[min(7, int(8 * (scale(level) - scale(low)) / span))] for level in levels
    )
    console.print(Text(f" {line}", style="cyan"))
    caption = text("diagnose.loss", high=high, low=low) + (text("diagnose.log_scale") if log else "")
    if diagnosis.findings and diagnosis.verdict not in ("healthy", "rl"):
        finding = diagnosis.findings[0]
        since = finding.evidence.get("since", finding.step)
        at = next((i for i, step in enumerate(steps) if step >= since), len(steps) - 1) * width // len(losses)
        console.print(Text(" " * (at + 1) + "^" + f" {since:,}" if at < width - 12 else f"{since:,} ^".rjust(at + 2)))
    console.print(Text(caption, style="dim"))


def _can_show(console: Console, bars: str) -> bool:
    try:
        bars.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _indented(console: Console, line: str, by: int = 2, style: str = "") -> None:
    hang = by + 2 if line.startswith("- ") else by
    for number, part in enumerate(wrapped(visible(line), max(console.width - hang, 20))):
        console.print(Text(" " * (hang if number else by) + part, style=style), soft_wrap=True)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(v) for v in value[:4]) + (", ...]" if len(value) > 4 else "]")
    return str(value)
