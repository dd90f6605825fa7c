"""What is said during a run: events into the record, the terminal, the trackers and webhooks; from the first rank."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from .. import texts
from ..alerts.acting import LOST, demands
from ..alerts.life import Life
from ..alerts.options import AlertOptions
from ..alerts.post import Post
from ..detect import Finding
from ..detect.endings import RANK
from ..identity.redact import hide, redact_text
from ..record.reader import read_rows
from ..record.schema import EVENTS, FOLDER, encode
from ..record.writer import RecordWriter
from ..texts import speaking
from ..texts.findings import told
from .console import Console
from .trackers import Trackers

_TAIL_BYTES = 8 << 20


def one_line(error: BaseException, limit: int) -> str:
    """An exception as one line that may be passed on: secrets in it are hidden."""
    return redact_text(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": "))[:limit]


class Journal:
    """The record's writer and the terminal of one training.

    Args:
        trainer: the Trainer.
        resumed: does training go on from a step > 0?
        is_main: is this the first rank? Elsewhere nothing is written or shown.
        trackers: where warnings and errors go as well, as alerts.
        hidden: secrets that must not stand in any event, however they got into its text.
        options: when alerts are told, to whom, and which ones stop the run.
        propose: `propose("save" or "stop", step)` asks the Trainer for it, on all ranks at once.
        post: the webhooks of the training before in this process (`auto_find_batch_size` begins anew).

    Attributes:
        muted: while True nothing is written or shown (rows from before a resume are being replayed).
        writer: the record's writer, None on other ranks.
        post: the webhooks, None where there are none.
    """

    def __init__(
        self,
        trainer,
        resumed: bool,
        is_main: bool,
        trackers: Trackers,
        hidden: frozenset[str] = frozenset(),
        options: AlertOptions | None = None,
        propose: Callable[[str, int], None] = lambda what, step: None,
        post: Post | None = None,
    ):
        self._hidden, self._trackers, self._propose = hidden, trackers, propose
        self._options = options or AlertOptions()
        self._trainer = trainer
        self._stops = False
        self.muted = False
        self.console = Console(enabled=is_main)
        self.writer = RecordWriter(trainer.args.output_dir, resumed, self._problem) if is_main else None
        self._news: list[str] = []
        self._life = self._open_life() if is_main and resumed else self._new_life()
        self.post = post or (self._open_post() if is_main else None)

    def join(self) -> None:
        """From here on this rank writes too, whichever it is."""
        if self.writer is None:
            self.writer = RecordWriter.joining(self._trainer.args.output_dir)
            self.post = self._open_post(rank=self._trainer.args.process_index)

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
        is_over: bool = False,
        alias: str = "",
    ) -> None:
        """Record one event and tell of it; an alert (`kind`) as its life and the cooldown say.

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
            show: print it; an info that is not shown is not sent either.
            is_over: an alert about something that has ended already.
            alias: what `stop_on` calls it, for an event that is no alert and can stop the run.
        """
        if self.writer is None or self.muted:
            return
        step = self._trainer.state.global_step if step is None else step
        row = {"step": step, "time": time.time(), "kind": kind, "level": level, "name": name, "title": title}
        row |= hide({"text": text, "evidence": evidence or {}}, self._hidden)
        row |= {"action": action, "suggest": suggest or {}}
        if kind == "alert":
            about = (name, title, level, step, row["time"], row["evidence"])
            life = self._life.update(*about, is_over=is_over, keep=row)
            grave = life.level if life.state == "resolved" else level
            row["alert"] = asdict(replace(life, told=life.told and RANK[grave] >= RANK[self._options.min_level]))
        self.writer.append(EVENTS, row)
        self._tell(row, show)
        if (kind == "alert" or alias) and self._options.stops(name, alias or title, level):
            self._stop(name, alias or title, step)

    def pass_on(self, event: dict) -> None:
        """An event, which another process may have recorded, to the trackers and the webhooks.

        The trackers get warnings, errors, and what ends them.
        """
        life = event.get("alert") or {}
        grave = life.get("level", "info") if life.get("state") == "resolved" else event["level"]
        if grave != "info":
            title = f"{event['name']}: {event['title']}"
            with speaking(None):
                said = told(event["title"], event["step"], event["text"], event.get("evidence") or {})
            self._trackers.alert(title, said, event["level"], event["step"])
        if self.post is not None and event["kind"] != "webhook":  # that one is about the webhooks
            try:
                self.post.send(json.loads(encode(event)))
            except Exception as error:  # no fault of the callback that is speaking
                self.post = None
                self._news.append(f"webhooks are off after {one_line(error, 200)}; training goes on")

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
            is_over=finding.until is not None,
        )

    def step(self, step: int) -> None:
        """A row is finished: tell of what was held back, and of the webhooks themselves."""
        if self.writer is None or self.muted:
            return
        for life, row in self._life.overdue(step, time.time()):
            text = f"It is there again since step {row['step']} and lasts. {row['text']}"
            self._tell(row | {"step": step, "text": text, "alert": asdict(life)}, show=True)
        self._say_news()

    def still_open(self) -> list[dict]:
        """The alerts that go on, the gravest first; for the end of the run."""
        return self._life.still_open()

    def close(self) -> None:
        """The end of training: send what is unsent, for a while, and let go of the files."""
        if self.post is not None:
            self.post.at_end()
            self._say_news()
        if self.writer is not None:
            self.writer.close()

    def callback_off(self, name: str, error: BaseException) -> None:
        """A callback failed and is called no more."""
        text = f"switched off after {one_line(error, 300)}; training goes on"
        muted, self.muted = self.muted, False
        self.event("callback_off", name, f"{name} switched off", text, level="warn")
        self.muted = muted

    # ---- inside -------------------------------------------------------------------------------------------------

    def _tell(self, row: dict, show: bool) -> None:
        """To people: the terminal, the trackers, the webhooks."""
        life = row.get("alert")
        if life is not None and not life["told"]:
            return
        if show:
            often = life is not None and life["state"] == "repeated" and life["count"] > 1
            with speaking(None):
                more = texts.text("alerts.often", count=life["count"], since=life["since"]) if often else ""
                said = told(row["title"], row["step"], row["text"], row["evidence"])
                line = texts.text("alerts.line", step=row["step"], name=row["name"], said=said)
            self.console.line(line + more, row["level"])
        if show or row["level"] != "info":
            self.pass_on(row)

    def _stop(self, name: str, title: str, step: int) -> None:
        """An alert that is named under `stop_on`: a checkpoint if it is worth one, then the end; once."""
        if self._stops:
            return
        self._stops = True
        wishes = demands("stop", title, lost=self._life.is_open(LOST))
        for what in wishes:
            self._propose(what, step)
        then = "a checkpoint is saved and training stops"
        if "save" not in wishes:
            then = "training stops without a checkpoint, because the weights are lost; resume from an earlier one"
        text = f"{name}: {title} of step {step} is named in obs: alerts: stop_on; {then}"
        self.event("stop", "alerts", "an alert stops the run", text, level="warn", step=step, evidence={"alert": title})

    def _open_post(self, rank: int | None = None) -> Post | None:
        if not self._options.webhooks:
            return None
        args = self._trainer.args
        folder = Path(args.output_dir)
        run = getattr(args, "run_name", None) or folder.resolve().name
        try:
            return Post(folder / FOLDER, self._options, str(hide(str(run), self._hidden)), rank)
        except Exception as error:
            self._news.append(f"no webhook is called: {one_line(error, 200)}; training goes on")
            return None

    def _new_life(self) -> Life:
        return Life(self._options.cooldown_steps, self._options.cooldown_s)

    def _open_life(self) -> Life:
        """The lives that the record knows of, up to the step that training goes on from."""
        life = self._new_life()
        try:
            events, _ = read_rows(self.writer.folder / EVENTS, tail_bytes=_TAIL_BYTES)
            life.restore(events, self._trainer.state.global_step)
        except Exception:  # a record that cannot be read is no reason not to train
            return self._new_life()
        return life

    def _say_news(self) -> None:
        news = [*self._news, *(self.post.news() if self.post is not None else ())]
        self._news.clear()
        for text in news:
            self.event("webhook", "alerts", "webhook trouble", text, level="warn")

    def _problem(self, problem: str | None) -> None:
        if problem is not None:
            self.console.line(f"{problem}; training goes on, rows are lost until it works again", "warn")
        else:
            text = f"writing works again; {self.writer.dropped} rows were lost"
            self.event("record_gap", "recorder", "rows lost", text, level="warn")
