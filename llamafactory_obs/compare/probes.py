"""The probes of two runs side by side, at the last checkpoint that each was asked at."""

from math import comb

from ..record.schema import BASE
from .model import ProbePair, Probes, Run


def probes(a: Run, b: Run) -> Probes | None:
    """None where one has no results of a tuned checkpoint, or the suites are not the same."""
    one, other = a.summary.probes, b.summary.probes
    if one is None or other is None or one.digest != other.digest:
        return None
    at_a, at_b = _last(one.columns), _last(other.columns)
    if at_a is None or at_b is None:
        return None
    names = list(dict.fromkeys([*one.probes, *other.probes]))
    rows = []
    for name in names:
        x = one.passed[name][at_a] if name in one.passed else None
        y = other.passed[name][at_b] if name in other.passed else None
        if x is not None or y is not None:
            rows.append(ProbePair(name, x, y, _word(x, y)))
    fixed, broke = (sum(row.word == word for row in rows) for word in ("fixed", "broke"))
    return Probes(one.suite, one.columns[at_a], other.columns[at_b], rows, fixed, broke, sign_test(fixed, broke))


def sign_test(fixed: int, broke: int) -> float:
    """Two-sided p of so uneven a split if either way were equally likely (exact binomial; McNemar 1947)."""
    n, k = fixed + broke, min(fixed, broke)
    return min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def _last(columns: list[str]) -> int | None:
    return max((i for i, name in enumerate(columns) if name != BASE), default=None)


def _word(a: bool | None, b: bool | None) -> str:
    if a is None or b is None:
        return "only_b" if a is None else "only_a"
    return ("same_pass" if a else "same_fail") if a == b else ("fixed" if b else "broke")
