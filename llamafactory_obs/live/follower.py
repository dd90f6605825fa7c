"""Follows one run: reads what is new in its files, keeps little, and says what is known."""

import math
import os
import time
from dataclasses import replace
from pathlib import Path

from ..record.schema import CHECKPOINTS, EVENTS, FOLDER, PROBES, RUN, STEPS
from .curve import Curve
from .happened import Happened
from .pace import Pace
from .plan import Plan, read_plan
from .probes import Probes
from .snapshot import Snapshot
from .status import Watchman
from .tail import Tail
from .trainer_log import as_row

LOSS, EVAL, NORM, TOKENS = "train/loss", "eval/loss", "train/grad_norm", "system/tokens_per_sec"
#: the columns that are kept as curves
CURVES = (LOSS, EVAL, NORM, TOKENS)
_LOG = "trainer_log.jsonl"
#: curves with a moving average, and its span: as many steps as a fortieth of the run, within these bounds
_SMOOTHED = (LOSS, NORM, TOKENS)
_SPAN = (5, 200)
_ABOUT_ROWS = frozenset({"step", "time", "segment"})


class Follower:
    """Follows the record of a run, or, only where it has none, its `trainer_log.jsonl`.

    The folder need not be there yet. The record may grow, be moved to `obs/archive/` and begun anew, go on with
    another segment after a resume, end in a torn line, or vanish. What a resume takes back is taken back here as well,
    as soon as its first step is there; `load_record` keeps the old steps until each of them has come again.

    Not for several threads at once.

    Args:
        output_dir: the run's output folder, or its `obs/` folder.
        price: of the machine in an hour; None: what the run's config says (`obs: {price: ...}`).
        points: most points of a curve.
        more: further columns to keep as curves.
    """

    def __init__(
        self, output_dir: str | os.PathLike, price: float | None = None, points: int = 800, more: tuple[str, ...] = ()
    ):
        path = Path(output_dir)
        self._given, self._price, self._most = str(output_dir), price, points
        self._folder = path if path.name == FOLDER and not (path / FOLDER).is_dir() else path / FOLDER
        self._columns = tuple(dict.fromkeys((*CURVES, *more)))
        self._version = 0
        self._empty()

    def update(self) -> Snapshot:
        """Read what is new."""
        before = self._rows
        for _ in range(3):  # a record that is replaced while it is read is read again
            if not self._read():
                break
            self._empty()
            before = -1
        return self._snapshot(changed=self._rows != before)

    def _empty(self) -> None:
        """Nothing is known."""
        self._tails = {name: Tail(self._folder / name) for name in (EVENTS, STEPS, CHECKPOINTS, PROBES)}
        self._log: Tail | None = Tail(self._folder.parent / _LOG)
        self._log_clock: float | None = None
        self._curves = {name: Curve(self._most, _SPAN[0] if name in _SMOOTHED else 0) for name in self._columns}
        self._happened, self._pace, self._probes = Happened(), Pace(), Probes()
        self._watchman = Watchman(self._folder.parent)
        self._plan, self._plan_file = Plan(), None
        self._latest: dict[str, object] = {}
        self._segment, self._step, self._rows = 0, 0, 0
        self._kept: Snapshot | None = None
        self._told: tuple | None = None

    def _read(self) -> bool:
        """Read what is new. True where a file has been replaced: all that was read counts no longer."""
        self._read_plan()
        for name, take in (
            (EVENTS, self._happened.add),
            (STEPS, self._take_step),
            (CHECKPOINTS, self._happened.saved),
            (PROBES, self._probes.add),
        ):
            for rows in self._tails[name].rows():
                self._rows += len(rows)
                for row in rows:
                    take(row)
                if name == EVENTS:
                    self._after_events()
            if self._tails[name].replaced:
                return True
        if self._rows and self._log is not None and self._log_clock is not None:
            return True  # a record where there was only a log
        if self._rows:
            self._log = None
        elif self._log is not None:
            for rows in self._log.rows():
                for row in rows:
                    self._take_log(row)
            return self._log.replaced
        return False

    def _read_plan(self) -> None:
        try:
            status = os.stat(self._folder / RUN)
        except OSError:
            return
        file = (status.st_ino, status.st_mtime_ns, status.st_size)
        if file != self._plan_file:
            self._plan_file, self._plan = file, read_plan(self._folder)
            self._rows += 1

    def _after_events(self) -> None:
        for segment, step in self._happened.specials:
            self._pace.special(segment, step)
        self._happened.specials.clear()
        session = self._happened.newest
        if session is not None and session.max_steps:
            for name in _SMOOTHED:
                self._curves[name].set_span(min(_SPAN[1], max(_SPAN[0], session.max_steps // 40)))

    def _take_step(self, row: dict) -> None:
        """One row of steps.jsonl."""
        step, segment = row.get("step"), row.get("segment", 0)
        if step is None or segment < self._segment:
            return
        if segment > self._segment:
            self._segment = segment
            self._pace.begin(segment)
            for curve in self._curves.values():
                curve.cut(step)
            self._step = 0
            self._latest = {}
        self._happened.step(segment, step, row.get("time", 0.0), row.get("time/step_s"))
        if LOSS not in row and any(name.startswith("eval/") for name in row):
            self._pace.special(segment, step)
        else:
            self._pace.step(step, row.get("time", 0.0))
        self._step = max(self._step, step)
        self._take_values(step, row)

    def _take_values(self, step: int, row: dict) -> None:
        self._latest |= row
        for name, curve in self._curves.items():
            if type(value := row.get(name)) in (int, float):
                curve.add(step, float(value))

    def _take_log(self, row: dict) -> None:
        """One row of trainer_log.jsonl: its clock begins anew at each start of training."""
        found = as_row(row)
        if found is None:
            return
        values, most, clock = found
        step, modified = values["step"], self._log.modified
        session = self._happened.newest
        anew = session is None or (clock is not None and self._log_clock is not None and clock < self._log_clock)
        if anew:
            self._segment = 0 if session is None else session.segment + 1
            self._pace.begin(self._segment)
            for curve in self._curves.values():
                curve.cut(step)
        self._log_clock = clock or 0.0
        self._happened.from_log(self._segment, step, modified, self._log_clock, most)
        self._pace.special(self._segment, step) if "eval/loss" in values else self._pace.step(step, self._log_clock)
        self._step = step
        self._rows += 1
        self._take_values(step, values)

    def _snapshot(self, changed: bool) -> Snapshot:
        if changed or self._kept is None:
            self._kept = self._whole()
        held = self._kept
        told = self._watchman.tell(self._happened, self._pace, self._plan, held.step, held.epoch)
        if changed or told != self._told:
            self._version += 1
            self._told = told
        status, ending, alive = told
        now, session = time.time(), self._happened.newest
        seconds, to_go = held.seconds, held.seconds_to_go
        if status in ("training", "evaluating", "saving"):
            seconds += max(0.0, now - session.heard)
        elif status == "ended":
            to_go = None
        about_now = {"now": now, "status": status, "ending": ending, "alive": alive, "version": self._version}
        return replace(held, **about_now, seconds=seconds, seconds_to_go=to_go)

    def _whole(self) -> Snapshot:
        """All that changes only with new rows."""
        latest = {
            name: value
            for name, value in self._latest.items()
            if type(value) in (int, float) and name not in _ABOUT_ROWS
        }
        epoch = latest.get("train/epoch", math.nan)
        session, pace = self._happened.newest, self._pace.step_seconds
        most = session.max_steps if session else None
        begins = session is not None and (session.segment > self._segment or not self._step)
        step = session.from_step if begins else self._step
        return Snapshot(
            dir=self._given,
            name=self._plan.name or self._folder.parent.resolve().name,
            now=time.time(),
            source="record" if self._log is None else "trainer_log" if self._log_clock is not None else None,
            heard=session.heard if session else None,
            step=step,
            max_steps=most,
            epoch=epoch if math.isfinite(epoch) else None,
            epochs=self._plan.epochs,
            segment=session.segment if session else 0,
            seconds=self._seconds() if session else None,
            seconds_to_go=pace * max(0, most - step) if most and pace else None,
            step_seconds=pace,
            price=self._plan.price[0] if self._price is None else self._price,
            currency=self._plan.price[1] if self._price is None else "",
            nodes=self._plan.nodes,
            curves={name: curve.points() for name, curve in self._curves.items()},
            latest=latest,
            about=self._plan.about,
            probes=self._probes.round(),
            alerts=self._happened.alerts(),
            events=tuple(self._happened.events),
            checkpoints=self._happened.checkpoints(),
            verdict=self._happened.verdict,
            torn=sum(tail.torn for tail in self._tails.values()),
        )

    def _seconds(self) -> float:
        """Of all starts, the loading before each first step with it, where the record knows of it."""
        sessions = self._happened.sessions.values()
        loads = (max(0.0, one.begun - self._plan.process_started.get(one.segment, one.begun)) for one in sessions)
        return sum(one.seconds for one in sessions) + sum(loads)
