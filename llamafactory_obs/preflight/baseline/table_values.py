"""A score as people write it: `0.85`, `85%`, `17/20`."""

import re

_FRACTION = re.compile(r"(\d+)\s*/\s*(\d+)")
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(%?)")
_LOOKS = re.compile(r"[+-]?[\d.,]+\s*(%|/\s*\d+)?")
_HOW = "write 0.85, 85% or 17/20"


class NotClear(ValueError):
    """What is wrong with a value, in one line."""


def looks_like_value(text: str) -> bool:
    """Is this meant as a number, right or wrong?"""
    return _LOOKS.fullmatch(text) is not None and any(mark.isdigit() for mark in text)


def value_of(text: str, percent: bool = False) -> float:
    """The share, 0..1.

    Args:
        percent: a `%` stands in the heading.

    Raises:
        NotClear: empty, no number, out of range, or a number that may mean two things.
    """
    if not text:
        raise NotClear("the cell is empty")
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        right, of = int(fraction[1]), int(fraction[2])
        if not 0 <= right <= of or of == 0:
            raise NotClear(f"{text} is out of range: so many right of so many")
        return right / of
    number = _NUMBER.fullmatch(text)
    if number is None:
        comma = " (a decimal comma?)" if re.fullmatch(r"\d+,\d+\s*%?", text) else ""
        raise NotClear(f"{text[:40]!r} is no score{comma}: {_HOW}")
    value, in_percent = float(number[1]), bool(number[2])
    if percent and not in_percent and 0 < value < 1:
        raise NotClear(f"{text} below a heading with %: is it {value:.0%} or {text} %? {_HOW}")
    if in_percent or percent:
        if not 0 <= value <= 100:
            raise NotClear(f"{text}{'' if in_percent else ' %'} is out of range 0 % to 100 %")
        return value / 100
    if not 0 <= value <= 1:
        hint = f": is it {text} %? " if 1 < value <= 100 else "; "
        raise NotClear(f"{text} is out of range 0 to 1{hint}{_HOW}")
    return value
