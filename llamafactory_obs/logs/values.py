"""Numbers as logs write them: as numbers, as text, as shares, as durations, as "10/438"."""

import math
import re
from collections.abc import Sequence

_CLOCK = re.compile(r"(?:(-?\d+) days?,? +)?(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?")
_UNITS = re.compile(r"([\d.]+) *(d|h|m(?!s)|s|ms)(?![a-z])")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DIGIT = re.compile(r"\d")


def number(value: object) -> float | None:
    """The number that a value is or says; NaN and Infinity are numbers. None for everything else.

    A share "27.81%" is 27.81, as it stands.
    """
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        return float(value.strip().rstrip("%")) if "_" not in value else None
    except ValueError:
        return None


def seconds(value: object) -> float | None:
    """A duration in seconds: 12.5, "0:32:48", "4 days, 7:18:24", "8h 8m 1s", "24s", "05:31"."""
    if not isinstance(value, str):
        return number(value)
    text = value.strip()
    if match := _CLOCK.fullmatch(text):
        days, first, second, third = match.groups()
        hours, minutes, rest = (first, second, third) if third is not None else ("0", first, second)
        return int(days or 0) * 86400.0 + int(hours) * 3600 + int(minutes) * 60 + float(rest)
    parts = _UNITS.findall(text)
    if parts and not _DIGIT.search(_UNITS.sub("", text)):
        try:
            return sum(float(amount) * _SECONDS[unit] for amount, unit in parts)
        except ValueError:
            return None
    return number(text)


class Durations:
    """Texts of the form "9 days, 21:39:23" by the hundred thousand: hours and the rest of the hour are looked up."""

    def __init__(self):
        self._hours = _Known(":00:00", "")
        self._rest = _Known("", "0")

    def of(self, values: Sequence) -> list[float | None]:
        """Seconds of each value, None where it says no duration."""
        hours, rest = self._hours, self._rest
        try:
            return [hours[value[:-6]] + rest[value[-6:]] for value in values]
        except (TypeError, ValueError):
            return [seconds(value) for value in values]


class _Known(dict):
    """Part of a duration -> seconds; what is asked for the first time is read."""

    def __init__(self, behind: str, before: str):
        super().__init__()
        self._behind, self._before = behind, before

    def __missing__(self, part: str) -> float:
        found = seconds(f"{self._before}{part}{self._behind}") if part.count(":") in (0, 2) else None
        if found is None:
            raise ValueError(part)
        self[part] = found
        return found


def position(value: object) -> tuple[float | None, float | None]:
    """Step and total of 10, "10" or "10/438"."""
    if isinstance(value, str) and "/" in value:
        at, _, total = value.partition("/")
        return number(at), number(total)
    return number(value), None
