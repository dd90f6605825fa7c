"""glm4_moe: `<tool_call>name`, then `<arg_key>`/`<arg_value>` pairs.

LlamaFactory's formatter writes no `</tool_call>` although the models' own template does, so both are right here: a call
is closed where its last pair is. (Its extractor for this format is the one of qwen and reads none of this.)
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from ..turns import Attempt
from .build import from_json, unclosed
from .json_text import shown
from .tagged import typed

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
STRAY = (CLOSE, KEY, KEY_END, VALUE, VALUE_END)
_MARK = re.compile("</?tool_call>")
_NAME = re.compile(r"\s*([A-Za-z_][\w.:/-]*)?\s*")
_SPACE = re.compile(r"\s*")
_GOOD_END = re.compile(rf"{VALUE_END}(?=\s*(?:{KEY}|</?tool_call>|\Z))")
_ANY_END = re.compile(VALUE_END)


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """Every block that is opened."""
    marks = [found.start() for found in _MARK.finditer(body)]
    # A value may hold `</arg_value>`: the one that the format goes on after is meant. Searched once, not per value.
    ends = [found.start() for found in _GOOD_END.finditer(body)], [found.start() for found in _ANY_END.finditer(body)]
    attempts: list[Attempt] = []
    at = 0
    for start in marks:
        if start < at or not body.startswith(OPEN, start):
            continue
        attempt, at = _attempt(body, start, marks, ends, tools)
        attempts.append(attempt)
    return tuple(attempts)


def _attempt(body: str, start: int, marks: list[int], ends: tuple, tools: Mapping[str, dict]) -> tuple[Attempt, int]:
    named = _NAME.match(body, start + len(OPEN))
    name, at = named[1], named.end()
    if name is None:
        return _nameless(body, start, at, marks)
    arguments: dict = {}
    end = named.end(1)
    while body.startswith(KEY, at):
        key_end = body.find(KEY_END, at, at + 300)
        begin = _SPACE.match(body, key_end + len(KEY_END)).end() if key_end >= 0 else at
        limit = _next(marks, begin, body)
        if key_end < 0 or not body.startswith(VALUE, begin):
            return _cut(body, start, limit, name, arguments, f"{VALUE} after a key")
        begin += len(VALUE)
        good, first = _next(ends[0], begin, body), _next(ends[1], begin, body)
        stop = first if good == len(body) or first < limit < good else good
        if stop == len(body) or body.find(f"\n{KEY}", begin, stop) >= 0:
            return _cut(body, start, limit, name, arguments, VALUE_END)
        key = body[at + len(KEY) : key_end].strip()
        arguments[key] = typed(body[begin:stop], tools.get(name, {}), key)
        end = stop + len(VALUE_END)
        at = _SPACE.match(body, end).end()
    if body.startswith(CLOSE, at):
        end = at + len(CLOSE)
    elif not arguments and (body.startswith("{", at) or body[named.end(1) : named.end(1) + 1] not in ("", "\n", "<")):
        limit = _behind(body, _next(marks, at, body))
        detail = f"no {KEY} after the name: {shown(body[at : at + 60])}"
        return Attempt(body[start:limit], True, "invalid_syntax", detail, name), limit
    return Attempt(body[start:end], True, None, "", name, arguments), end


def _cut(body: str, start: int, limit: int, name: str, arguments: dict, missing: str) -> tuple[Attempt, int]:
    limit = _behind(body, limit)
    return unclosed(Attempt(body[start:limit], False, None, "", name, arguments), missing), limit


def _behind(body: str, limit: int) -> int:
    return limit + len(CLOSE) if body.startswith(CLOSE, limit) else limit


def _nameless(body: str, start: int, at: int, marks: list[int]) -> tuple[Attempt, int]:
    limit = _next(marks, at, body)
    closed = body.startswith(CLOSE, limit)
    end = _behind(body, limit)
    if body.startswith(("{", "["), at):
        attempt = from_json(body[start:end], body[at:limit])
        also = f"; {attempt.detail}" if attempt.error else ""
        attempt = replace(attempt, error="no_markup", detail=f"JSON in the block where name and {KEY} should be{also}")
    else:
        attempt = Attempt(body[start:end], True, "no_name", f"no name after {OPEN}: {shown(body[at:limit])}")
    return (attempt if closed else unclosed(attempt, CLOSE)), end


def _next(places: list[int], at: int, body: str) -> int:
    index = bisect_left(places, at)
    return places[index] if index < len(places) else len(body)
