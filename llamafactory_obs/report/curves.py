"""Curves as one line of bars, for the terminal and for Markdown."""

import itertools
import math
from dataclasses import dataclass

from ..logs.curves import Curves

#: shown where the log has them; of a tuple the first one that is there
SHOWN = (
    ("train/loss",),
    ("eval/loss",),
    ("train/grad_norm",),
    ("train/lr",),
    ("system/tokens_per_sec", "time/step_s", "time/per_step_s"),
    ("system/reserved_gib", "system/rss_gib"),
    ("data/supervised_ratio",),
)
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"


@dataclass(frozen=True)
class Curve:
    """One column: its bars, the lowest and highest mean of a piece, what it begins and ends with."""

    name: str
    bars: str
    low: float
    high: float


def curves_of(curves: Curves, width: int, bars: str = BARS) -> list[Curve]:
    """Each curve cut into at most `width` pieces by rows, each piece its mean; `x` where nothing in it is finite."""
    found = []
    for names in SHOWN:
        name = next((one for one in names if curves.has(one)), None)
        values = curves.points(name)[1] if name else []
        if len(values) > 1:
            found.append(_curve(name, values, width, bars))
    return found


def _curve(name: str, values: list[float], width: int, bars: str) -> Curve:
    pieces = min(width, len(values))
    edges = [round(place * len(values) / pieces) for place in range(pieces + 1)]
    means = [_mean(values[a:b]) for a, b in itertools.pairwise(edges)]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=math.nan), max(known, default=math.nan)
    scale = (len(bars) - 1) / (high - low) if known and high > low else 0.0
    line = "".join("x" if mean is None else bars[round((mean - low) * scale)] for mean in means)
    return Curve(name, line, low, high)


def _mean(values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None
