"""Small helpers on single numbers."""

import math


def as_number(value: object) -> float | None:
    """`value` as a float (NaN and infinities stay), or None where it is no number: None, text, True/False."""
    if type(value) is float:  # nearly always
        return value
    if isinstance(value, bool) or value is None or isinstance(value, str | bytes):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def plain(value: float | None, digits: int = 6) -> float | str | None:
    """`value` for the evidence of a finding: rounded to significant digits, non-finite ones as a word (strict JSON)."""
    if value is None:
        return None
    if math.isfinite(value):
        return float(f"{value:.{digits}g}")
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
