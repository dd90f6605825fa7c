"""Outcomes as plain values for JSON."""

import math
from dataclasses import is_dataclass


def plain(value):
    """Plain values; a number that is not finite is written as its word, a path as its text."""
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
