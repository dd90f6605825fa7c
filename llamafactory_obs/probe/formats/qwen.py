"""qwen, ling: `<tool_call>`, one JSON object with "name" and "arguments", `</tool_call>`; one block per call."""

import re
from bisect import bisect_left
from collections.abc import Mapping

from ..turns import Attempt
from .build import from_json, unclosed
from .json_text import Broken, decode

OPEN, CLOSE = "<tool_call>", "</tool_call>"
STRAY = (CLOSE,)
_MARK = re.compile("</?tool_call>")
# The same mark around what two other formats write; `foreign` reads those.
_OTHER = re.compile(r"\s*(?:<function=|[\w.-]+\s*<arg_key>)")
_SPACE = re.compile(r"\s*")


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """Every block that is opened. A closing mark within a text of the JSON closes nothing."""
    marks = [found.start() for found in _MARK.finditer(body)]  # found once: searching anew per block is quadratic
    attempts: list[Attempt] = []
    at = 0
    for start in marks:
        if start < at or not body.startswith(OPEN, start):
            continue
        inner = start + len(OPEN)
        if _OTHER.match(body, inner):
            continue
        limit, at, closed = _block(body, inner, marks)
        attempt = from_json(body[start:at], body[inner:limit])
        attempts.append(attempt if closed else unclosed(attempt, CLOSE))
    return tuple(attempts)


def _block(body: str, inner: int, marks: list[int]) -> tuple[int, int, bool]:
    """Where the JSON of a block ends, where the block ends, and is it closed?"""
    begin = searched = _SPACE.match(body, inner).end()
    decoded = None
    if body.startswith(("{", "["), begin):
        try:
            _, searched = decode(body, begin)
            decoded = searched = _SPACE.match(body, searched).end()
        except Broken:
            pass
    index = bisect_left(marks, searched)
    limit = marks[index] if index < len(marks) else len(body)
    if body.startswith(CLOSE, limit):
        return limit, limit + len(CLOSE), True
    if decoded is not None and not body.startswith(("{", "[", ",", ";", "}", "]"), decoded):
        limit = decoded  # what follows an unclosed but complete object is said to the user
    return limit, limit, False
