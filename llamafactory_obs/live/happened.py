"""What happened, from the rows of events.jsonl: starts, alerts that go on, recent events, checkpoints, verdict."""

from collections import deque
from dataclasses import dataclass, field

from ..detect.endings import RANK
from .clock import Clock
from .snapshot import Alert, Checkpoint, Event

#: newest events and checkpoints that are kept
EVENTS, CHECKPOINTS = 50, 200
#: kinds that come often and say little
_QUIET = frozenset({"memory_peak", "eval", "verified", "checkpoint"})
_TEXT = 500
#: kinds that the probe, a process of its own, writes: no sign of life of the training
_OUTSIDE = frozenset({"probe", "note"})
_FAILURES = {"oom": "oom", "crash": "crashed", "interrupted": "interrupted"}


@dataclass
class Session:
    """One start of training.

    Attributes:
        begun: Unix seconds.
        heard: its newest row.
        from_step: where it began.
        ended: `end` or the kind of failure it ended with; None while nothing says so.
        ended_at: the step of that.
        noticed: a signal said that the machine is taken back.
        evaluated, saved: the newest steps behind which there was one.
    """

    segment: int
    begun: float
    heard: float
    from_step: int = 0
    max_steps: int | None = None
    ended: str | None = None
    ended_at: int = 0
    noticed: bool = False
    evaluated: int = -1
    saved: int = -1
    clock: Clock = field(default_factory=Clock)

    @property
    def seconds(self) -> float:
        """How long it has trained."""
        return self.clock.seconds(self.begun, self.heard)


class Happened:
    """Takes the rows in the order written.

    Attributes:
        sessions: by segment, in order.
        specials: `(segment, step)` behind which there was an evaluation or a save, since the last look.
    """

    def __init__(self):
        self.sessions: dict[int, Session] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.verdict: dict | None = None
        self.specials: list[tuple[int, int]] = []
        self._alerts: dict[str, Alert] = {}
        self._checkpoints: dict[int, Checkpoint] = {}

    def add(self, row: dict) -> None:
        """One row of events.jsonl."""
        kind, step, segment = str(row.get("kind", "")), row.get("step", 0), row.get("segment", 0)
        event = _event(row)
        if kind in ("start", "resume", "retry"):
            self._begin(row, event)
        elif kind not in _OUTSIDE or event.name == "vram":
            self._hear(row, kind, event)
        if kind == "checkpoint":
            path = str((_evidence(row)).get("path", event.text))
            self._checkpoints.pop(step, None)
            self._checkpoints[step] = Checkpoint(step, event.time, path)
            self.specials.append((segment, step))
        elif kind == "eval":
            self.specials.append((segment, step))
        elif kind == "alert":
            self._alert(row, event)
        elif kind == "diagnosis" and event.title == "verdict":
            verdict = str(_evidence(row).get("verdict", ""))
            self.verdict = {"verdict": verdict, "action": event.action, "text": event.text}
        if kind not in _QUIET:
            self.events.append(event)

    def saved(self, row: dict) -> None:
        """One row of checkpoints.jsonl; see `record.checkpoints` for how they belong together."""
        step = row.get("step", 0)
        held = self._checkpoints.get(step) or Checkpoint(step, row.get("time", 0.0), str(row.get("path", "")))
        verdict = row.get("verdict")
        fresh = "save_s" in row
        self._checkpoints[step] = Checkpoint(
            step,
            held.time,
            str(row.get("path") or held.path),
            verdict if isinstance(verdict, str) else held.verdict,
            row["good"] if isinstance(row.get("good"), bool) else held.good,
            row["save_s"] if fresh and type(row["save_s"]) in (int, float) else held.save_s,
            row["bytes"] if type(row.get("bytes")) is int else held.size,
            bool(row.get("deleted")) or (held.deleted and not fresh),
        )

    def step(self, segment: int, step: int, time: float, step_s: object = None) -> None:
        """A row of steps.jsonl: a sign of life.

        Args:
            step_s: what the run has measured for the step, where it has.
        """
        session = self.sessions.get(segment)
        if session is None:  # the event is lost (a full disk), or comes with the next look
            session = self.sessions[segment] = Session(segment, time, time, max(0, step - 1))
        session.heard = max(session.heard, time)
        session.clock.add(session.begun, step, time, step_s)

    def from_log(self, segment: int, step: int, heard: float, clock: float, max_steps: int | None) -> None:
        """A row of trainer_log.jsonl.

        Args:
            heard: when the log was last written.
            clock: seconds since this start of training, by the log.
        """
        session = self.sessions.get(segment)
        if session is None:
            session = self.sessions[segment] = Session(segment, heard - clock, heard, max(0, step - 1))
        session.heard, session.begun, session.max_steps = heard, heard - clock, max_steps
        if max_steps is not None and step >= max_steps:
            session.ended, session.ended_at = "end", step

    @property
    def newest(self) -> Session | None:
        return self.sessions[max(self.sessions)] if self.sessions else None

    @property
    def ending(self) -> str | None:
        """How the newest start has ended, None where nothing says so."""
        session = self.newest
        if session is None or session.ended is None:
            return None
        if session.ended != "end":
            return _FAILURES[session.ended]
        if session.max_steps is None or session.ended_at >= session.max_steps:
            return "finished"
        return "notice" if session.noticed else "stopped"

    def alerts(self) -> tuple[Alert, ...]:
        """Those that go on, the gravest first, then the newest."""
        return tuple(sorted(self._alerts.values(), key=lambda one: (-RANK[one.level], -one.event.step)))

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """By step; the newest `CHECKPOINTS`."""
        for step in sorted(self._checkpoints)[:-CHECKPOINTS]:
            del self._checkpoints[step]
        return tuple(self._checkpoints[step] for step in sorted(self._checkpoints))

    def _begin(self, row: dict, event: Event) -> None:
        segment = row.get("segment", 0)
        if event.kind == "retry":  # auto_find_batch_size: said by the training before, which ends here
            if (session := self.sessions.get(segment)) is not None:
                session.heard = max(session.heard, event.time)
            return
        most = _evidence(row).get("max_steps")
        most = int(most) if isinstance(most, (int, float)) and 0 < most < 1e12 else None
        held = self.sessions.get(segment)
        heard = max(event.time, held.heard) if held else event.time
        self.sessions[segment] = Session(segment, event.time, heard, event.step, most)
        self.sessions = dict(sorted(self.sessions.items()))
        self.verdict = None

    def _hear(self, row: dict, kind: str, event: Event) -> None:
        session = self.sessions.get(row.get("segment", 0))
        if session is None:
            return
        session.heard = max(session.heard, event.time)
        if kind == "eval":
            session.evaluated = max(session.evaluated, event.step)
        elif kind == "checkpoint":
            session.saved = max(session.saved, event.step)
        elif kind == "notice":
            session.noticed = True
        elif kind == "control":
            _new_plan(session, row)
        elif kind == "end" or (kind in _FAILURES and session.ended != "oom"):  # a `crash` stands beside an `oom`
            session.ended, session.ended_at = kind, event.step

    def _alert(self, row: dict, event: Event) -> None:
        life = row.get("alert")
        if not isinstance(life, dict):
            return
        name = str(life.get("id", f"{event.name}/{event.title}"))
        if life.get("open") is not True:
            self._alerts.pop(name, None)
            return
        level = life.get("level")
        level = level if isinstance(level, str) and level in RANK else event.level
        since, count = life.get("since"), life.get("count")
        since = since if type(since) is int else event.step
        self._alerts[name] = Alert(name, level, since, count if type(count) is int else 1, event)


def _new_plan(session: Session, row: dict) -> None:
    """`control --max-steps`."""
    order, results = _evidence(row).get("order"), _evidence(row).get("results")
    most = order.get("max_steps") if isinstance(order, dict) else None
    done = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    if type(most) is int and any(one.get("what") == "max_steps" and one.get("status") != "refused" for one in done):
        session.max_steps = most


def _evidence(row: dict) -> dict:
    evidence = row.get("evidence")
    return evidence if isinstance(evidence, dict) else {}


def _event(row: dict) -> Event:
    life = row.get("alert")
    state = life.get("state") if isinstance(life, dict) else None
    level = row.get("level")
    return Event(
        step=row.get("step", 0),
        time=row.get("time", 0.0),
        kind=str(row.get("kind", "")),
        level=level if isinstance(level, str) and level in RANK else "info",
        name=str(row.get("name", "")),
        title=str(row.get("title", "")),
        text=str(row.get("text", ""))[:_TEXT],
        action=str(row.get("action", "none")),
        state=state if isinstance(state, str) else None,
        evidence=_evidence(row),
    )
