"""The record sheet: groups of lines, each one fact that was measured, or why it was not."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..diagnosis.result import Diagnosis
from ..summary import RunSummary
from .values import moment, reason, t


@dataclass(frozen=True)
class Line:
    """One fact.

    Attributes:
        key: its stable name. label: in words. value: in words; "" where it was not measured.
        why: why it was not, and how to have it next time; "" where it was.
    """

    key: str
    label: str
    value: str
    why: str = ""


@dataclass
class Group:
    """Facts about one thing; `title` in words."""

    key: str
    title: str
    lines: list[Line] = field(default_factory=list)


class Writer:
    """Takes the facts of one group.

    Args:
        summary: says why something is missing.
        key: of the group.
        utc: times of day in UTC instead of the reader's zone.
    """

    def __init__(self, summary: RunSummary, key: str, utc: bool = False):
        self.summary, self.utc = summary, utc
        self._said = ""
        self.group = Group(key, t(f"group.{key}"))

    def add(self, key: str, value: str | None, missing: str = "", label: str = "") -> None:
        """One fact; of what is None and has a reason under `missing` the reason stands there."""
        label = label or t(f"label.{key}")
        if value:
            self.group.lines.append(Line(key, label, value))
        elif missing in self.summary.missing:
            why = reason(self.summary.missing[missing])
            if why == self._said:
                why = t("likewise")
            else:
                self._said = why
            self.group.lines.append(Line(key, label, "", why))


def joined(parts: list[str | None]) -> str:
    """The parts that there are, as one line."""
    return t("joint").join(part for part in parts if part)


def sheet(summary: RunSummary, diagnosis: Diagnosis | None = None, utc: bool = False) -> list[Group]:
    """The whole sheet in the language that is spoken (`texts.language`).

    Args:
        diagnosis: what `diagnose` says of the run; None leaves its line out.
        utc: times of day in UTC, for what must not depend on where it is made.
    """
    from . import course, machine, outcome

    writers: list[tuple[str, Callable[[Writer], None]]] = [
        ("run", machine.run),
        ("machine", machine.machine),
        ("settings", machine.settings),
        ("course", course.course),
        ("speed", course.speed),
        ("resources", course.resources),
        ("data", course.data),
        ("result", outcome.result),
        ("evidence", lambda writer: outcome.evidence(writer, diagnosis)),
        ("notes", _notes),
    ]
    groups = []
    for key, write in writers:
        writer = Writer(summary, key, utc)
        write(writer)
        if writer.group.lines:
            groups.append(writer.group)
    return groups


def _notes(writer: Writer) -> None:
    for note in writer.summary.notes:
        label = t("label.note", time=moment(note.time, writer.utc), step=note.step)
        writer.add("note", note.text, label=label)
