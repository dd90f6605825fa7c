"""What a person sees: a block per checkpoint with the raw outputs, and at the end a matrix."""

import os
import re
import shutil
import sys
from typing import TextIO

from rich.cells import cell_len, chop_cells

from ..texts import text
from ..texts.sentences import sentence
from ..texts.wrap import padded
from .in_words import detail_in_words, error_in_words
from .judge import headline
from .results import BASE
from .words import diff, likeness, shorten

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLES = {"good": "32", "bad": "31", "dim": "2", "bold": "1", "warn": "33"}
#: lines of one answer shown at most; the record holds all of it
_MOST_LINES = 40
#: lines of differences shown at most
_MOST_DIFF = 6
#: below this likeness the differences tell less than the two texts themselves
_ANOTHER_TEXT = 0.35


class View:
    """Writes for people.

    Args:
        out: where blocks and the matrix go (stdout, or stderr beside --json).
        record: the file that holds what is not shown in full.
    """

    def __init__(self, out: TextIO | None = None, record: str = "obs/probes.jsonl"):
        self._out = out or sys.stdout
        self._record = record
        self._live = self._out.isatty()
        self._colour = self._live and "NO_COLOR" not in os.environ
        self._bar = 0

    @property
    def _width(self) -> int:
        return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))

    def say(self, text: str, style: str = "") -> None:
        """One line between the blocks."""
        self._clear()
        self._write(self._styled(visible(sentence(text)), style))

    def progress(self, name: str, probe: str, turn: int, tokens: int) -> None:
        """The line that shows that something is being generated."""
        if self._live:
            line = text("probe.progress", name=name, probe=probe, turn=turn, tokens=tokens)
            self._out.write("\r" + padded(line, self._bar))
            self._out.flush()
            self._bar = cell_len(line)

    def block(self, title: str, rows: list[dict], earlier: dict[str, dict], notes: list[str]) -> None:
        """One checkpoint.

        Args:
            title: name, step, backend, seconds.
            rows: its result rows, in the suite's order.
            earlier: probe name -> the row it is compared with.
            notes: what is worth knowing, one line each.
        """
        self._clear()
        self._write("")
        head = f"── {title} "
        self._write(self._styled(head + "─" * (self._width - cell_len(head)), "bold"))
        for note in notes:
            self._wrapped(f"! {sentence(note)}", "  ", "warn")
        longest = max(cell_len(row["probe"]) for row in rows)
        for row in rows:
            self._probe(row, earlier.get(row["probe"]), longest)

    def _probe(self, row: dict, earlier: dict | None, longest: int) -> None:
        mark, style = ("✓", "good") if row["passed"] else ("✗", "bad")
        name = row["probe"] + " " * (longest - cell_len(row["probe"]))
        self._write(f"{self._styled(f'{mark} {name}', style)}  {visible(row['prompt'])}")
        for number, turn in enumerate(row["turns"], 1):
            self._raw(str(number), turn["raw"])
            for reply in turn["replies"]:
                self._wrapped(text("probe.tool", reply=visible(reply["text"])), "      ", "dim")
            for line in turn["other_parsers"]:
                self._wrapped(f"! {sentence(line)}", "      ", "warn")
        for detail in row["details"]:
            self._wrapped(visible(detail_in_words(detail)), "    ", "bad")
        self._changes(row, earlier)

    def _raw(self, label: str, answer: str) -> None:
        """The raw text, a mark at its left edge; wrapped by cells, so that Chinese keeps its width."""
        lines = [
            piece
            for line in visible(answer, newlines=True).split("\n")
            for piece in chop_cells(line, self._width - 8) or [""]
        ]
        for number, line in enumerate(lines[:_MOST_LINES]):
            self._write(f"  {label if not number else '':>3} {self._styled('│', 'dim')} {line}")
        if len(lines) > _MOST_LINES:
            more = text("probe.more_lines", count=len(lines) - _MOST_LINES, file=self._record)
            self._write(self._styled(f"      {more}", "dim"))

    def _changes(self, row: dict, earlier: dict | None) -> None:
        previous, base = row.get("vs_previous"), row.get("vs_base")
        if base is not None and (previous is None or base["change"] == "broke"):
            self._change(base, text("probe.base_model"))
        if previous is not None:
            self._change(previous, previous["checkpoint"])
        if earlier is not None and earlier["output"] != row["output"]:
            self._diff(earlier["output"], row["output"])

    def _change(self, against: dict, other: str) -> None:
        style = {"fixed": "good", "broke": "bad"}.get(against["change"], "dim")
        line = text(f"probe.change.{against['change']}", other=other)
        line += text("probe.same_text") if against["same_text"] else ""
        if against["change"] == "same" and against.get("new_errors"):
            line += text("probe.new_errors", errors=", ".join(map(error_in_words, against["new_errors"])))
        self._write(self._styled(f"    {line}", style))

    def _diff(self, old: str, new: str) -> None:
        """Words of the old text in [-...-], of the new one in {+...+}; a few lines at most."""
        pieces = diff(visible(old), visible(new))
        if likeness(pieces) < _ANOTHER_TEXT:
            self._write(self._styled(f"      {text('probe.another_text')}", "dim"))
            return
        marks = {" ": ("", "", "dim"), "-": ("[-", "-]", "bad"), "+": ("{+", "+}", "good")}
        lines, used = [""], 0
        for sign, piece in shorten(pieces):
            before, after, style = marks[sign]
            for number, part in enumerate(_broken(f"{before}{piece}{after}", self._width - 6, used)):
                if number:
                    lines.append("")
                    used = 0
                lines[-1] += self._styled(part, style)
                used += cell_len(part)
        for line in lines[:_MOST_DIFF]:
            self._write(f"      {line}")
        if len(lines) > _MOST_DIFF:
            more = text("probe.more_differences", count=len(lines) - _MOST_DIFF)
            self._write(self._styled(f"      {more}", "dim"))

    def matrix(self, columns: dict[tuple[int, str], dict[str, dict]], probes: list[str]) -> None:
        """Probes down, checkpoints across; "ok" or the first thing that is wrong."""
        self._clear()
        if not columns:
            return
        heads = [text("probe.base") if name == BASE else name.removeprefix("checkpoint-") for _, name in columns]
        cells = [[_cell(rows.get(probe)) for rows in columns.values()] for probe in probes]
        widths = [
            max(cell_len(cell) for cell in [head, *column]) + 2 for head, *column in zip(heads, *cells, strict=True)
        ]
        left = max(cell_len(name) for name in [text("probe.probe"), *probes]) + 1
        start = 0
        while start < len(heads):
            end, used = start, left
            while end < len(heads) and (end == start or used + widths[end] <= self._width):
                used += widths[end]
                end += 1
            self._write("")
            self._line(text("probe.probe"), left, heads[start:end], widths[start:end], "bold")
            for name, row in zip(probes, cells, strict=True):
                self._line(name, left, row[start:end], widths[start:end])
            start = end

    def _line(self, name: str, left: int, cells: list[str], widths: list[int], style: str = "") -> None:
        styles = {text("probe.ok"): "good", "-": "dim"}
        line = self._styled(name + " " * (left - cell_len(name)), style)
        for cell, width in zip(cells, widths, strict=True):
            line += " " * (width - cell_len(cell)) + self._styled(cell, style or styles.get(cell, "bad"))
        self._write(line)

    def _wrapped(self, text: str, indent: str, style: str) -> None:
        for line in chop_cells(text, self._width - cell_len(indent)) or [""]:
            self._write(indent + self._styled(line, style))

    def _styled(self, text: str, style: str) -> str:
        return f"\033[{_STYLES[style]}m{text}\033[0m" if style and self._colour else text

    def _clear(self) -> None:
        if self._bar:
            self._out.write("\r" + " " * self._bar + "\r")
            self._bar = 0

    def _write(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def visible(text: str, newlines: bool = False) -> str:
    """Control characters written out: a model's output must not steer the terminal. Newlines too, unless kept."""
    text = text if newlines else text.replace("\n", "\\n")
    text = text.replace("\t", "    ") if newlines else text.replace("\t", "\\t")
    return _CONTROL.sub(lambda mark: mark[0] if mark[0] == "\n" else f"\\x{ord(mark[0]):02x}", text)


def duration(seconds: float) -> str:
    """`3.1 s` or `2 min 5 s`."""
    if seconds < 60:
        return text("probe.seconds", seconds=seconds)
    return text("probe.minutes", minutes=int(seconds // 60), seconds=int(seconds % 60))


def _broken(text: str, width: int, used: int) -> list[str]:
    """A text cut into lines of so many cells; the first has less room by `used`."""
    first = chop_cells(text, max(1, width - used))[0] if text and used < width else ""
    rest = text[len(first) :]
    return [first, *(chop_cells(rest, width) if rest else [])]


def _cell(row: dict | None) -> str:
    if row is None:
        return "-"
    return text("probe.ok") if row["passed"] else error_in_words(headline(row["errors"]))
