"""lfm2: `<|tool_call_start|>[name(key="value", other=1)]<|tool_call_end|>`, a list of Python calls.

LlamaFactory writes texts between double quotes without escaping anything, so a quote ends a text only where the list
can go on after it, and a line break may stand in it. A backslash is read as Python reads it.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from ..turns import Attempt
from .build import from_json, unclosed
from .json_text import LONGEST_LITERAL, Broken, decode, extent, literal, shown

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
STRAY = (CLOSE,)
_SPACE = re.compile(r"\s*")
_OBJECT = re.compile(r"\[?\s*\{")
_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*\(\s*")
_BARE = re.compile(r"\s*\[\s*([A-Za-z_][\w.-]*)\(")
_KEY = re.compile(r"([^\W\d][\w-]*)\s*=\s*")
_WORD = re.compile(r"(?:True|true|False|false|None|null)\b")
_WORDS = {"true": True, "false": False, "none": None, "null": None}
_AFTER = r"(?=\s*(?:,\s*[^\W\d][\w-]*\s*=|\)\s*(?:,\s*[A-Za-z_][\w.-]*\s*\(|\]|<\|tool_call_end\|>|\Z)))"
_ENDS = {quote: re.compile(quote + _AFTER) for quote in "\"'"}
_ESCAPE = re.compile(r"\\(?:([nrtbf0\\\"'])|u([0-9a-fA-F]{4}))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}


class _Wrong(ValueError):
    """`place`: where it is no call any more."""

    def __init__(self, detail: str, place: int):
        super().__init__(detail)
        self.detail, self.place = detail, place


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """One attempt per call of each list."""
    attempts: list[Attempt] = []
    at = 0
    ends = {quote: [found.start() for found in pattern.finditer(body)] for quote, pattern in _ENDS.items()}
    while (start := body.find(OPEN, at)) >= 0:
        pieces, at = _block(body, start, ends)
        attempts += pieces
    return tuple(attempts) or _bare(body, ends, tools)


def _block(body: str, start: int, ends: dict[str, list[int]]) -> tuple[list[Attempt], int]:
    at = _SPACE.match(body, start + len(OPEN)).end()
    if _OBJECT.match(body, at):
        return _json(body, start, at)
    bracket = body.startswith("[", at)
    at += bracket
    pieces: list[Attempt] = []
    try:
        while True:
            name, arguments, at = _call(body, at, ends)
            pieces.append(Attempt(body[start:at], True, None, "", name, arguments))
            start, at = at, _SPACE.match(body, at).end()
            if not body.startswith(",", at):
                break
            at += 1
        if bracket and not body.startswith("]", at):
            raise _Wrong('"]" is missing', at)
        at = _SPACE.match(body, at + bracket).end()
        if not body.startswith(CLOSE, at):
            raise _Wrong(f"{CLOSE} is missing", at)
    except _Wrong as wrong:
        return _broken(body, start, pieces, wrong)
    end = at + len(CLOSE)
    return [*pieces[:-1], replace(pieces[-1], text=pieces[-1].text + body[start:end])], end


def _json(body: str, start: int, at: int) -> tuple[list[Attempt], int]:
    """The right marks around the JSON of other formats, which these models fall back to."""
    stop = body.find(CLOSE, at)
    limit = stop if stop >= 0 else len(body)
    end = limit + len(CLOSE) if stop >= 0 else limit
    attempt = from_json(body[start:end], body[at:limit])
    also = f"; {attempt.detail}" if attempt.error else ""
    attempt = replace(attempt, error="no_markup", detail=f"JSON where name(key=value) should be{also}")
    return [attempt if stop >= 0 else unclosed(attempt, CLOSE)], end


def _bare(body: str, ends: dict[str, list[int]], tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """An answer that begins with a list of calls of a known tool, without the marks."""
    found = _BARE.match(body)
    if not found or found[1] not in tools:
        return ()
    detail = "a list of calls without the marks of the format"
    try:
        name, arguments, end = _call(body, found.start(1), ends)
    except _Wrong as wrong:
        return (Attempt(body, False, "no_markup", f"{detail}; {wrong.detail}", found[1]),)
    stop = body.rfind("]", end)
    return (Attempt(body[: stop + 1] if stop >= 0 else body, stop >= 0, "no_markup", detail, name, arguments),)


def _broken(body: str, start: int, pieces: list[Attempt], wrong: _Wrong) -> tuple[list[Attempt], int]:
    """A list that cannot be read as a whole: no parser makes calls of its beginning."""
    stop = body.find(CLOSE, wrong.place)
    opened = body.find(OPEN, wrong.place, stop if stop >= 0 else len(body))
    closed = stop >= 0 and opened < 0
    end = stop + len(CLOSE) if closed else (opened if opened >= 0 else len(body))
    rest = body[start:end]
    if not closed and pieces and body[wrong.place : wrong.place + 1] not in ("", ",", "("):
        rest = body[start : (end := wrong.place)]  # complete calls without the closing mark; what follows is said
    detail = f"{wrong.detail} at: {shown(body[wrong.place : wrong.place + 60]) or 'the end'}"
    name = _NAME.match(body, start if pieces else _after_open(body, start))
    if rest.strip() and (not pieces or rest.lstrip(" ,]\n") not in ("", CLOSE)):
        pieces = [*pieces, Attempt(rest, True, "invalid_syntax", detail, name[1] if name else None)]
    else:
        pieces = [*pieces[:-1], replace(pieces[-1], text=pieces[-1].text + rest)]
    if closed:
        return [one if one.error else replace(one, error="invalid_syntax", detail=detail) for one in pieces], end
    return [unclosed(one, CLOSE) for one in pieces], end


def _after_open(body: str, start: int) -> int:
    at = _SPACE.match(body, start + len(OPEN)).end()
    return at + body.startswith("[", at)


def _call(body: str, at: int, ends: dict[str, list[int]]) -> tuple[str, dict, int]:
    named = _NAME.match(body, at)
    if not named:
        raise _Wrong("no call", _SPACE.match(body, at).end())
    arguments: dict = {}
    at = named.end()
    while not body.startswith(")", at):
        key = _KEY.match(body, at)
        if not key:
            raise _Wrong("no name=value", at)
        arguments[key[1]], at = _value(body, key.end(), ends)
        at = _SPACE.match(body, at).end()
        if body.startswith(",", at):
            at = _SPACE.match(body, at + 1).end()
        elif not body.startswith(")", at):
            raise _Wrong('no "," or ")"', at)
    return named[1], arguments, at + 1


def _value(body: str, at: int, ends: dict[str, list[int]]) -> tuple[object, int]:
    quote = body[at : at + 1]
    if quote in ends:
        end = _text_end(body, at + 1, ends[quote])
        return _ESCAPE.sub(_unescaped, body[at + 1 : end]), end + 1
    if word := _WORD.match(body, at):
        return _WORDS[word[0].lower()], word.end()
    try:
        return decode(body, at)
    except Broken as broken:
        if quote not in ("{", "["):
            raise _Wrong(broken.reason, at) from None
    try:  # a Python literal: single quotes, True. Longer ones are not tried, so that many broken ones cost little
        length, missing = extent(body[at : at + LONGEST_LITERAL], 0)
        if not missing:
            return literal(body[at : at + length]), at + length
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        pass
    raise _Wrong("no value", at)


def _text_end(body: str, at: int, ends: list[int]) -> int:
    index = bisect_left(ends, at)
    for end in ends[index : index + 20]:
        backslashes = end - at - len(body[at:end].rstrip("\\"))
        if backslashes % 2 == 0:
            return end
    if index < len(ends):
        return ends[index]  # a text that ends in a backslash, written without escaping
    raise _Wrong("the text does not end", at)


def _unescaped(found: re.Match) -> str:
    return chr(int(found[2], 16)) if found[2] else _ESCAPED.get(found[1], found[1])
