"""Checkpoints for a person at a terminal of 80 columns: one line each, and more for those that are not fine."""

import textwrap
import time

from rich.console import Console
from rich.text import Text

from .examine import Examined
from .folder import Report
from .run_of import OLDER
from .verdict import DAMAGED, EXACT, SERVES, WARM

_COLUMNS = 80
_COLOUR = {EXACT: "green", SERVES: "green", WARM: "yellow", DAMAGED: "bold red"}


def show(report: Report, console: Console, now: float | None = None) -> None:
    """Print all of it."""
    now = time.time() if now is None else now
    rows = [*report.checkpoints, *([report.final] if report.final is not None else [])]
    console.print(Text(f"{'step':>8}  {'verdict':<15}  {'what':<25}  {'size':>7}  age", style="bold"))
    for one in rows:
        line = Text(f"{'final' if one.final else one.step:>8}  ")
        line.append(f"{one.verdict.verdict:<15}", style=_COLOUR[one.verdict.verdict])
        mark = " (other run)" if one.run == OLDER else ""
        unread = f"{one.kind}, unreadable" if one.kind != "none" else "no weights"
        what = _cut(one.what or unread, 25 - len(mark)) + mark
        line.append(f"  {what:<25}  {size(one.bytes):>7}  {age(one.saved_at, now)}")
        console.print(line)
    shared = _shared_notes(rows)
    for one in rows:
        _details(one, console, shared)
    if shared:
        console.print()
    for note in shared:
        _say(console, "all: ", note)
    console.print()
    for label, good in (("to resume from: ", report.resume), ("to serve:       ", report.serve)):
        _say(console, label, good.name if good is not None else "none of them")
    tried = [one for one in rows if one.loaded is not None and one.loaded.stage not in ("base", "process")]
    if tried:
        fine = [one for one in tried if one.verdict.serves]
        where = next((one.loaded.device for one in tried if one.loaded.device), "cpu")
        _say(console, "loaded:         ", f"{len(fine)} of {len(tried)}, with finite logits, on {where}")
    if report.quick:
        _say(console, "", "only headers and sizes were read; without --quick the content is, too")
    if report.flaw:
        console.print(Text("\n".join(_wrapped("not fine: ", report.flaw)), style="bold red"))


def _details(one: Examined, console: Console, shared: list[str]) -> None:
    lines = list(one.verdict.reasons)
    if one.verdict.verdict == DAMAGED and (one.verdict.resumes or one.verdict.serves):
        still = [word for word, can in (("resumes", one.verdict.resumes), ("serves", one.verdict.serves)) if can]
        lines.append(f"it still {' and '.join(still)}")
    if one.verdict.verdict == WARM:
        lines.append(f"a resume begins anew: {', '.join(one.verdict.lost)}")
    if one.run == OLDER:
        lines.append(f"of another run: {one.run_why}")
    if one.moving:
        lines.append(f"a save may be under way, look again: {one.moving}")
    lines += [note for note in one.verdict.notes if note not in shared]
    unloaded = one.not_loaded not in ("", "not asked for", "its weights are broken")
    if unloaded and one.not_loaded not in shared and one.verdict.serves:
        lines.append(f"not loaded: {one.not_loaded}")
    if one.files is not None:
        lines.append(f"sha256 {one.files['sha256']}")
    if not lines:
        return
    console.print(Text(f"\n{one.name}", style="bold"))
    for line in lines:
        _say(console, "  - ", line)


def _shared_notes(rows: list[Examined]) -> list[str]:
    """Notes that are the same for all of several checkpoints are said once."""
    if len(rows) < 2:
        return []
    first = [*rows[0].verdict.notes, *([rows[0].not_loaded] if rows[0].not_loaded else [])]
    every = [{*one.verdict.notes, one.not_loaded} for one in rows if not one.final]
    return [note for note in first if note != "not asked for" and all(note in notes for notes in every)]


def size(count: int) -> str:
    """Bytes for people: `548 kB`, `15.3 GB`."""
    for unit, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {word}"
    return f"{count} B"


def age(saved_at: float, now: float) -> str:
    """How long ago: `5 min`, `2.5 h`; `?` where it is not known, or lies in the future (another machine's clock)."""
    seconds = now - saved_at
    if not saved_at or seconds < 0:
        return "?"
    for unit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.2g} {word}" if seconds < 10 * unit else f"{seconds / unit:.0f} {word}"
    return f"{seconds:.0f} s"


def _say(console: Console, label: str, text: str) -> None:
    for line in _wrapped(label, text):
        console.print(Text(line))


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, initial_indent=label, subsequent_indent=" " * len(label)) or [label]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
