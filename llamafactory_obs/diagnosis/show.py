"""A diagnosis for a person: the verdict first, then why, what to change, and what could not be seen."""

import math
import textwrap
from statistics import median
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from ..detect import Finding
from ..logs.curves import Curves
from .result import Cause, Diagnosis
from .verdict import speaks

_WORDS = {"kill": ("KILL", "bold red"), "keep": ("KEEP", "bold green"), "none": ("NO LOG", "bold yellow")}
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
    word, style = _WORDS[diagnosis.action]
    name = diagnosis.verdict.replace("_", " ")
    head = Text(word, style=style) + Text(f"  {name}", style="bold")
    path = visible(diagnosis.path)
    fits = len(head) + 2 + len(path) <= console.width
    console.print(head + Text(f"  {path}", style="dim") if fits else head)
    if not fits:
        console.print(Text(path, style="dim"), soft_wrap=True)
    where = f"{diagnosis.source}, {diagnosis.kind}, step {diagnosis.steps:,}"
    where += f" of {curves.max_steps:,}" if curves.max_steps else ""
    console.print(Text(f"{where}, {len(curves):,} row{'' if len(curves) == 1 else 's'}", style="dim"))
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
    for title, lines in (("Not in this log:", diagnosis.unseen), ("About the file:", diagnosis.notes)):
        if lines:
            console.print(Text(title, style="bold"))
        for line in lines:
            _indented(console, f"- {line}", 1)


def _finding(console: Console, finding: Finding, causes: list[Cause]) -> None:
    style = {"kill": "red", "keep": "yellow"}.get(finding.action, "")
    span = f"step {finding.evidence.get('since', finding.step):,}"
    span += f" to {finding.until:,}" if finding.until not in (None, finding.evidence.get("since", finding.step)) else ""
    sure = f", confidence {finding.confidence:.0%}" if finding.confidence is not None else ""
    name = finding.name.replace("_", " ")
    console.print(Text(f"{name}", style=f"bold {style}") + Text(f"  {span}, {finding.action}{sure}", style="dim"))
    _indented(console, finding.text)
    shown = {key: value for key, value in finding.evidence.items() if key not in _TOLD and value is not None}
    if shown:
        _indented(
            console, "evidence: " + ", ".join(f"{key} {_plain(value)}" for key, value in shown.items()), style="dim"
        )
    for cause in causes[:2]:
        why = cause.supports[0] if cause.supports else (cause.next or "")
        if cause.name == "unknown":
            _indented(console, f"cause: not enough evidence. {cause.next or why}")
            break
        _indented(console, f"cause? {cause.name.replace('_', ' ')} (score {cause.score:.2f}): {why}")
    if finding.suggest:
        _indented(console, "for the next run's YAML:")
    for key, value in finding.suggest.items():
        _indented(console, f"{key}: {_plain(value)}", 4, "green")


def _others(console: Console, findings: list[Finding]) -> None:
    """What is worth knowing: one line each, the same things together."""
    if not findings:
        return
    console.print(Text("Also seen:", style="bold"))
    by_name: dict[str, list[Finding]] = {}
    for finding in findings:
        by_name.setdefault(finding.name, []).append(finding)
    for name, same in by_name.items():
        first = same[0].text.split(". ")[0]
        more = f" ({len(same)} times)" if len(same) > 1 else ""
        _indented(console, f"- {name.replace('_', ' ')}{more}: {first}", 1)


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
    caption = f" loss {high:.4g} to {low:.4g}" + (" (log scale)" if log else "")
    if diagnosis.findings and diagnosis.verdict not in ("healthy", "rl"):
        finding = diagnosis.findings[0]
        since = finding.evidence.get("since", finding.step)
        at = next((i for i, step in enumerate(steps) if step >= since), len(steps) - 1) * width // len(losses)
        console.print(Text(" " * (at + 1) + "^" + f" {since:,}" if at < width - 12 else f"{since:,} ^".rjust(at + 2)))
    console.print(Text(caption, style="dim"))


def _can_show(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _indented(console: Console, text: str, by: int = 2, style: str = "") -> None:
    hang = by + 2 if text.startswith("- ") else by
    for number, line in enumerate(textwrap.wrap(visible(text), max(console.width - hang, 20)) or [""]):
        console.print(Text(" " * (hang if number else by) + line, style=style), soft_wrap=True)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(v) for v in value[:4]) + (", ...]" if len(value) > 4 else "]")
    return str(value)
