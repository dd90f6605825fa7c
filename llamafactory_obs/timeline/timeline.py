"""A log as a timeline: lanes of metrics and what happened, on one axis of steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..detect import Finding
from ..logs.curves import Curves
from ..texts import text
from .beside import Beside, beside
from .happened import Happening, happenings
from .lanes import Axis, Lane, choose, lane, whole_axis

#: steps to both sides whose events are listed, in rows
_NEAR = 20
_QUIET = ("checkpoint", "eval", "other")


@dataclass(frozen=True)
class Timeline:
    """What is shown.

    Attributes:
        title: one line: the log, what it is, its steps.
        axis: the steps.
        around: the step that is looked at; None for the whole run.
        lanes: the metrics.
        happened: all of the log, by step.
        numbers: the metrics at `around`; empty without it.
        rows: optimizer steps per row of the log.
    """

    title: str
    source: str
    axis: Axis
    around: int | None
    lanes: list[Lane]
    happened: list[Happening]
    numbers: list[Beside] = field(default_factory=list)
    rows: int = 1

    def near(self) -> list[Happening]:
        """Around the step all events, else those of the whole log that are not quiet."""
        if self.around is None:
            return [one for one in self.happened if one.kind not in _QUIET]
        reach = _NEAR * self.rows
        return [
            one
            for one in self.happened
            if one.step - reach <= self.around <= (one.until if one.until is not None else one.step) + reach
        ]

    def as_dict(self) -> dict:
        """Strict JSON: a number that is not finite is its name."""
        return {
            "title": self.title,
            "source": self.source,
            "first_step": self.axis.first,
            "last_step": self.axis.last,
            "around": self.around,
            "lanes": [
                {
                    "name": one.name,
                    "low": _plain(one.low),
                    "high": _plain(one.high),
                    "pieces": [_of_piece(self.axis, place, piece) for place, piece in enumerate(one.pieces) if piece],
                }
                for one in self.lanes
            ],
            "numbers": [
                {
                    "name": one.name,
                    "before": _plain(one.before),
                    "at": _plain(one.at),
                    "after": _plain(one.after),
                    "z": _plain(one.z),
                }
                for one in self.numbers
            ],
            "events": [
                {"step": one.step, "until": one.until, "kind": one.kind, "name": one.who, "title": one.title}
                | {"text": one.text}
                for one in (self.near() if self.around is not None else self.happened)
            ],
        }


def make(
    curves: Curves,
    *,
    pieces: int,
    around: int | None = None,
    wanted: Sequence[str] = (),
    findings: Sequence[Finding] = (),
) -> Timeline:
    """The timeline of a log.

    Args:
        pieces: into how many the axis is cut at most.
        around: a step to look at closely.
        wanted: the columns to show, in this order; empty: the usual ones.
        findings: what `diagnose` says of it.

    Raises:
        ConfigError: the log is empty, or has not that step or that column.
    """
    axis = whole_axis(curves, pieces, around)
    names = choose(curves, wanted)
    first, last = min(curves.steps), max(curves.steps)
    about = {"path": curves.path, "source": curves.source, "kind": curves.kind, "rows": len(curves)}
    title = text("timeline.title", first=first, last=last, **about)
    lanes = [lane(curves, name, axis) for name in names]
    numbers = [] if around is None else beside(curves, names, around)
    happened = happenings(curves, findings)
    return Timeline(title, curves.source, axis, around, lanes, happened, numbers, curves.logging_steps)


def _of_piece(axis: Axis, place: int, piece) -> dict:
    return {
        "from": axis.start(place),
        "to": axis.start(place + 1) - 1,
        "low": _plain(piece.low),
        "high": _plain(piece.high),
        "mean": _plain(piece.mean),
        **({"not_finite": piece.bad} if piece.bad else {}),
    }


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else "nan" if math.isnan(value) else str(value)
