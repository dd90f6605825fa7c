"""Numbers, sparklines and table cells, as the terminal and the report show them."""

import itertools
import math

from .outcome import DIFFERS, EQUAL, NOISE, UNKNOWN, Measure

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
#: under a sparkline
SAME, OTHER = "=", "x"
_WORDS = {EQUAL: "equal", NOISE: "noise", DIFFERS: "DIFFERS", UNKNOWN: "unknown"}


def number(value: float | None) -> str:
    """Three digits; `-` for none."""
    return "-" if value is None else f"{value:.3g}"


def word(measure: Measure) -> str:
    """The status as one word."""
    return _WORDS[measure.status]


def differing(unequal: int | None, compared: int, largest: float | None) -> str:
    """`2 of 3 differ, by 1.2e-05 at most`."""
    if unequal is None:
        return "not known"
    if not unequal:
        return f"all {compared} equal" if compared > 1 else "equal"
    size = f", by {number(largest)}" if largest is not None and math.isfinite(largest) else ""
    return f"{unequal} of {compared} differ{size}"


def sparklines(rows: list[list[float | None]], width: int, bars: str = BARS) -> list[str]:
    """Curves of equal length, each as one line of at most `width` characters on one common scale; `x` where a value is
    missing or not finite."""
    count = min(width, len(rows[0]))
    means = [[_mean(row[a:b]) for a, b in _pieces(len(row), count)] for row in rows]
    known = [one for row in means for one in row if one is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return ["".join("x" if one is None else bars[round((one - low) * scale)] for one in row) for row in means]


def marks(one: list, other: list, width: int) -> str:
    """`=` where all values of a place are equal, `x` where one is not."""
    count = min(width, len(one))
    equal = [same(a, b) for a, b in zip(one, other, strict=True)]
    return "".join(SAME if all(equal[a:b]) else OTHER for a, b in _pieces(len(one), count))


def same(a: float | None, b: float | None) -> bool:
    """Equal, or both NaN."""
    return a == b or (a != a and b != b)


def _pieces(length: int, count: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise([round(i * length / count) for i in range(count + 1)]))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if len(known) == len(values) and known else None
