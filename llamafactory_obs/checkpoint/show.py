"""Checkpoints for a person at a terminal of 80 columns: one line each, and more for those that are not fine."""

import time

from rich.console import Console
from rich.text import Text

from ..texts import text
from ..texts.wrap import cells, labelled, padded, right
from .examine import Examined
from .folder import Report
from .run_of import OLDER
from .verdict import DAMAGED, EXACT, SERVES, WARM

_COLOUR = {EXACT: "green", SERVES: "green", WARM: "yellow", DAMAGED: "bold red"}
_KEYS = {EXACT: "exact", WARM: "warm", SERVES: "serves", DAMAGED: "damaged"}
_COLUMN = ("step", "verdict", "what", "size", "age")


def show(report: Report, console: Console, now: float | None = None) -> None:
    """Print all of it."""
    now = time.time() if now is None else now
    rows = [*report.checkpoints, *([report.final] if report.final is not None else [])]
    step, verdict, what, bytes_, saved = (text(f"checkpoint.column.{name}") for name in _COLUMN)
    head = f"{right(step, 8)}  {padded(verdict, 15)}  {padded(what, 25)}  {right(bytes_, 7)}  {saved}"
    console.print(Text(head, style="bold"))
    for one in rows:
        line = Text(f"{right(text('checkpoint.final') if one.final else str(one.step), 8)}  ")
        line.append(padded(text(f"checkpoint.{_KEYS[one.verdict.verdict]}"), 15), style=_COLOUR[one.verdict.verdict])
        mark = text("checkpoint.other_run") if one.run == OLDER else ""
        unread = text("checkpoint.unreadable", kind=one.kind) if one.kind != "none" else text("checkpoint.no_weights")
        said = _cut(one.what or unread, 25 - cells(mark)) + mark
        line.append(f"  {padded(said, 25)}  {size(one.bytes):>7}  {age(one.saved_at, now)}")
        console.print(line)
    shared = _shared_notes(rows)
    for one in rows:
        _details(one, console, shared)
    if shared:
        console.print()
    for note in shared:
        _say(console, text("checkpoint.all"), note)
    console.print()
    for key, good in (("checkpoint.to_resume", report.resume), ("checkpoint.to_serve", report.serve)):
        _say(console, text(key), good.name if good is not None else text("checkpoint.none"))
    tried = [one for one in rows if one.loaded is not None and one.loaded.stage not in ("base", "process")]
    if tried:
        fine = [one for one in tried if one.verdict.serves]
        where = next((one.loaded.device for one in tried if one.loaded.device), "cpu")
        of = text("checkpoint.of_tried", fine=len(fine), tried=len(tried), device=where)
        _say(console, text("checkpoint.loaded"), of)
    if report.quick:
        _say(console, "", text("checkpoint.quick"))
    if report.flaw:
        console.print(Text("\n".join(labelled(text("checkpoint.not_fine"), report.flaw)), style="bold red"))


def _details(one: Examined, console: Console, shared: list[str]) -> None:
    lines = list(one.verdict.reasons)
    if one.verdict.verdict == DAMAGED and (one.verdict.resumes or one.verdict.serves):
        both = one.verdict.resumes and one.verdict.serves
        can = "both" if both else "resumes" if one.verdict.resumes else "serves"
        lines.append(text(f"checkpoint.still.{can}"))
    if one.verdict.verdict == WARM:
        lines.append(text("checkpoint.anew", parts=", ".join(one.verdict.lost)))
    if one.run == OLDER:
        lines.append(text("checkpoint.of_another_run", why=one.run_why))
    if one.moving:
        lines.append(text("checkpoint.moving", why=one.moving))
    lines += [note for note in one.verdict.notes if note not in shared]
    unloaded = one.not_loaded not in ("", text("checkpoint.not_asked"), text("checkpoint.weights_broken"))
    if unloaded and one.not_loaded not in shared and one.verdict.serves:
        lines.append(text("checkpoint.not_loaded", why=one.not_loaded))
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
    return [note for note in first if note != text("checkpoint.not_asked") and all(note in notes for notes in every)]


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
    for unit, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= unit:
            number = f"{seconds / unit:.2g}" if seconds < 10 * unit else f"{seconds / unit:.0f}"
            return text(f"checkpoint.age.{word}", number=number)
    return text("checkpoint.age.seconds", number=f"{seconds:.0f}")


def _say(console: Console, label: str, said: str) -> None:
    for line in labelled(label, said):
        console.print(Text(line))


def _cut(said: str, width: int) -> str:
    if cells(said) <= width:
        return said
    while cells(said) > width - 1:
        said = said[:-1]
    return said + "…"
