"""Numbers, sparklines and table cells, as the terminal and the report show them."""

import itertools
import math
from collections.abc import Iterable

from ... import texts
from .outcome import Measure

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
#: under a sparkline
SAME, OTHER = "=", "x"


def say(name: str, lang: str | None = None, /, **values: object) -> str:
    """A text of `drill_resume.toml`."""
    return texts.text(f"drill_resume.{name}", lang, **values)


def called(kind: str, name: str) -> str:
    """A name as a person reads it; one that nobody here has named stays as it is.

    Args:
        kind: measure | part.
    """
    return say(f"{kind}.{name}") if f"{kind}.{name}" in texts.texts("drill_resume", "en") else name


def named(kind: str, names: Iterable[str]) -> str:
    """Names in a row."""
    return say("joint").join(called(kind, name) for name in names)


def number(value: float | None) -> str:
    """Three digits; `-` for none."""
    return "-" if value is None else f"{value:.3g}"


def word(measure: Measure) -> str:
    """The status as one word."""
    return say(f"status.{measure.status}")


def differing(unequal: int | None, compared: int, largest: float | None) -> str:
    """`2 of 3 differ, by 1.2e-05`: how many, and the largest difference."""
    if unequal is None:
        return say("not_known")
    if not unequal:
        return say("all_equal", compared=compared) if compared > 1 else say("equal")
    if largest is not None and math.isfinite(largest):
        return say("differ_by", unequal=unequal, compared=compared, size=number(largest))
    return say("differ", unequal=unequal, compared=compared)


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
