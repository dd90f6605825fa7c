"""Which metrics are shown, and each of them cut into equal pieces of the step axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..diagnosis.causes.ordinary import middle
from ..errors import ConfigError
from ..logs.curves import Curves
from ..plugin.names import did_you_mean

#: what is shown where it was logged, in this order; of a tuple the first that is there
LANES: tuple[tuple[str, ...], ...] = (
    ("train/loss",),
    ("eval/loss",),
    ("train/grad_norm",),
    ("train/lr",),
    ("train/loss_scale",),
    ("data/max_length",),
    ("data/supervised_ratio",),
    ("time/step_s", "time/per_step_s"),
    ("system/tokens_per_sec",),
    ("system/reserved_gib", "system/rss_gib"),
    ("system/gpu_util",),
)
#: in a piece with several rows the lowest value is what one wants to see of these, else the highest
_LOW = ("tokens_per_sec", "gpu_util", "margin_gib", "available_gib", "free_gib")


@dataclass(frozen=True)
class Axis:
    """A stretch of steps in equal pieces.

    Attributes:
        first, last: steps, both inside.
        pieces: how many.
    """

    first: int
    last: int
    pieces: int

    def piece(self, step: int) -> int | None:
        """The piece of a step, None outside."""
        if not self.first <= step <= self.last:
            return None
        return min((step - self.first) * self.pieces // (self.last - self.first + 1), self.pieces - 1)

    def start(self, piece: int) -> int:
        """The first step of a piece."""
        return self.first + -(-piece * (self.last - self.first + 1) // self.pieces)


@dataclass(frozen=True)
class Piece:
    """The rows of one piece: finite values' extremes and mean; `bad`: "nan" or "inf" where one was not finite."""

    low: float
    high: float
    mean: float
    bad: str | None = None


@dataclass(frozen=True)
class Lane:
    """One metric on an axis.

    Attributes:
        name: the column.
        pieces: one for each of the axis, None where no row has the number.
        low, high: of all of them; NaN where nothing is finite.
        log: is the highest so far above the usual that only a logarithmic scale shows both?
        shown: "high" or "low": which extreme of a piece counts.
    """

    name: str
    pieces: list[Piece | None]
    low: float
    high: float
    log: bool
    shown: str

    def height(self, value: float) -> float:
        """0 (lowest) to 1 (highest)."""
        low, high = self.low, self.high
        if high - low <= 0.002 * max(abs(low), abs(high)):  # what does not move is drawn flat
            return 0.0
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def value(self, piece: Piece) -> float:
        """What is drawn of a piece."""
        return piece.high if self.shown == "high" else piece.low


def choose(curves: Curves, wanted: Sequence[str] = ()) -> list[str]:
    """The columns to show.

    Raises:
        ConfigError: a wanted one is not in the log.
    """
    for name in wanted:
        if not curves.has(name):
            hint = did_you_mean(name, curves.columns) or ""
            raise ConfigError(f"--metric {name}: not in this log{hint}; it has {', '.join(sorted(curves.columns))}")
    if wanted:
        return list(dict.fromkeys(wanted))
    found = [next((name for name in names if curves.has(name)), None) for names in LANES]
    return [name for name in found if name is not None]


def whole_axis(curves: Curves, pieces: int, around: int | None = None) -> Axis:
    """The axis of the whole log, or with `around` the steps near it, one piece each.

    Raises:
        ConfigError: the log holds no rows, or not that step.
    """
    if not len(curves):
        raise ConfigError(f"{curves.path}: no rows with numbers")
    first, last = min(curves.steps), max(curves.steps)
    if around is None:
        return Axis(first, last, min(pieces, last - first + 1))
    if not first <= around <= last:
        raise ConfigError(f"--around {around}: the log has the steps {first} to {last}")
    length = min(pieces * curves.logging_steps, last - first + 1)
    start = min(max(around - length // 2, first), last - length + 1)
    return Axis(start, start + length - 1, min(pieces, length))


def lane(curves: Curves, name: str, axis: Axis) -> Lane:
    """One column on the axis, in one pass over the rows."""
    found: list[list[float]] = [[] for _ in range(axis.pieces)]
    for step, value in zip(curves.steps, curves.columns[name], strict=True):
        piece = None if value is None else axis.piece(step)
        if piece is not None:
            found[piece].append(value)
    pieces = [_piece(values) for values in found]
    there = [piece for piece in pieces if piece is not None and math.isfinite(piece.mean)]
    low, high = min((p.low for p in there), default=math.nan), max((p.high for p in there), default=math.nan)
    log = bool(there) and low > 0 and high > 30 * middle([piece.mean for piece in there])
    return Lane(name, pieces, low, high, log, "low" if name.endswith(_LOW) else "high")


def _piece(values: list[float]) -> Piece | None:
    finite = [value for value in values if math.isfinite(value)]
    bad = next(("nan" if math.isnan(value) else "inf" for value in values if not math.isfinite(value)), None)
    if not finite:
        return Piece(math.nan, math.nan, math.nan, bad) if bad else None
    return Piece(min(finite), max(finite), sum(finite) / len(finite), bad)
