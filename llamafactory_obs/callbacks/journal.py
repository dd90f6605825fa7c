"""What is said during a run: events into the record and onto the terminal, from the first rank only."""

import time

from ..detect import Finding
from ..identity.redact import hide, redact_text
from ..record.schema import EVENTS
from ..record.writer import RecordWriter
from .console import Console
from .trackers import Trackers


def one_line(error: BaseException, limit: int) -> str:
    """An exception as one line that may be passed on: secrets in it are hidden."""
    return redact_text(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": "))[:limit]


class Journal:
    """The record's writer and the terminal of one training.

    Args:
        trainer: the Trainer.
        resumed: does training go on from a step > 0?
        is_main: is this the first rank? Elsewhere nothing is written or shown.
        hidden: secrets that must not stand in any event, however they got into its text.
        trackers: where warnings and errors go as well, as alerts.

    Attributes:
        muted: while True nothing is written or shown (rows from before a resume are being replayed).
        writer: the record's writer, None on other ranks.
    """

    def __init__(self, trainer, resumed: bool, is_main: bool, trackers: Trackers, hidden: frozenset[str] = frozenset()):
        self._hidden, self._trackers = hidden, trackers
        self.muted = False
        self.console = Console(enabled=is_main)
        self.writer = RecordWriter(trainer.args.output_dir, resumed, self._problem) if is_main else None
        self._trainer = trainer

    def join(self) -> None:
        """From here on this rank writes too, whichever it is."""
        if self.writer is None:
            self.writer = RecordWriter.joining(self._trainer.args.output_dir)

    def append(self, file: str, row: dict) -> None:
        """A row of one of the record's files."""
        if self.writer is not None and not self.muted:
            self.writer.append(file, row)

    def event(
        self,
        kind: str,
        name: str,
        title: str,
        text: str,
        *,
        level: str = "info",
        step: int | None = None,
        evidence: dict | None = None,
        action: str = "none",
        suggest: dict | None = None,
        show: bool = True,
    ) -> None:
        """Record one event and, with `show`, print it.

        Args:
            kind: what sort of event, see `docs/record.md`.
            name: who says it: a callback's YAML name.
            title: a few words, always the same for the same thing.
            text: what happened, since when, and the one thing to do now.
            level: info | warn | error.
            step: the step it belongs to; default the last one that was finished.
            evidence: the numbers behind it.
            action: kill | keep | none.
            suggest: YAML keys to change.
        """
        if self.writer is None or self.muted:
            return
        step = self._trainer.state.global_step if step is None else step
        row = {"step": step, "time": time.time(), "kind": kind, "level": level, "name": name, "title": title}
        said = hide({"text": text, "evidence": evidence or {}}, self._hidden)
        self.writer.append(EVENTS, row | said | {"action": action, "suggest": suggest or {}})
        if show:
            self.console.line(f"step {step} {name}: {said['text']}", level)
        self.pass_on(row | said)

    def pass_on(self, event: dict) -> None:
        """A warning or an error, which another process may have recorded, to the trackers."""
        if event["level"] != "info":
            self._trackers.alert(f"{event['name']}: {event['title']}", event["text"], event["level"], event["step"])

    def alert(self, name: str, finding: Finding) -> None:
        """Record and show what a detector found."""
        self.event(
            "alert",
            name,
            finding.name,
            finding.text,
            level=finding.level,
            step=finding.step,
            evidence=finding.evidence | {"limits": finding.limits},
            action=finding.action,
            suggest=finding.suggest,
        )

    def callback_off(self, name: str, error: BaseException) -> None:
        """A callback failed and is called no more."""
        text = f"switched off after {one_line(error, 300)}; training goes on"
        muted, self.muted = self.muted, False
        self.event("callback_off", name, f"{name} switched off", text, level="warn")
        self.muted = muted

    def _problem(self, problem: str | None) -> None:
        if problem is not None:
            self.console.line(f"{problem}; training goes on, rows are lost until it works again", "warn")
        else:
            text = f"writing works again; {self.writer.dropped} rows were lost"
            self.event("record_gap", "recorder", "rows lost", text, level="warn")
