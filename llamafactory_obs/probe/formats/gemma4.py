"""gemma4: `<|tool_call>call:name{key:value,...}<tool_call|>`; texts stand between `<|"|>`, keys stand bare."""

import re
from collections.abc import Mapping
from dataclasses import replace

from ..turns import Attempt
from .build import unclosed
from .json_text import Broken, decode, shown

OPEN, CLOSE = "<|tool_call>", "<tool_call|>"
STRAY = (CLOSE,)
# LlamaFactory's gemma4 template puts the calls of an answer between these, which the models' own template does not.
OUTER_OPEN, OUTER_CLOSE = "<|tool>", "<tool|>"
_QUOTE = '<|"|>'
_DEEPEST = 100
_NAME = re.compile(r"\s*call:\s*([^\s{}<]*)\s*\{")
_SPACE = re.compile(r"\s*")
_BARE_KEY = re.compile(r"\s*([^\s:{}\[\],<\"][^:{}\[\],<\"\n]*?)\s*:")
_WORD = re.compile(r"(?:true|false|null|nan|-?inf)\b")
_NUMBER = re.compile(r"-?\d[\d.eE+-]*")
_WORDS = {"true": True, "false": False, "null": None}


class _Wrong(ValueError):
    def __init__(self, detail: str, place: int):
        super().__init__(detail)
        self.detail, self.place = detail, place


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """Every block that is opened."""
    attempts: list[Attempt] = []
    at = 0
    while (start := body.find(OPEN, at)) >= 0:
        attempt, end = _attempt(body, start)
        if body.endswith(OUTER_OPEN, at, start):
            attempt = replace(attempt, text=OUTER_OPEN + attempt.text)
        if body.startswith(OUTER_CLOSE, end):
            attempt, end = replace(attempt, text=attempt.text + OUTER_CLOSE), end + len(OUTER_CLOSE)
        attempts.append(attempt)
        at = end
    return tuple(attempts)


def _attempt(body: str, start: int) -> tuple[Attempt, int]:
    named = _NAME.match(body, start + len(OPEN))
    if not named:
        return _broken(body, start, start + len(OPEN), Attempt("", True, "invalid_syntax", "no call:name{…}"))
    name = named[1] or None
    try:
        arguments, end = _object(body, named.end(), 0)
    except _Wrong as wrong:
        attempt = Attempt("", True, "invalid_syntax", wrong.detail, name)
        return _broken(body, start, wrong.place, _as_text(body, named.end(), attempt))
    if not body.startswith(CLOSE, end):
        after = _SPACE.match(body, end).end()
        if after < len(body) and not body.startswith((OPEN, CLOSE), after):
            detail = f"no closing mark after the arguments: {shown(body[end : end + 60])}"
            return _broken(body, start, end, Attempt("", True, "invalid_syntax", detail, name, arguments))
        return _broken(body, start, end, Attempt("", True, None, "", name, arguments))
    end += len(CLOSE)
    if name is None:
        return Attempt(body[start:end], True, "no_name", "nothing after call:", None, arguments), end
    return Attempt(body[start:end], True, None, "", name, arguments), end


def _as_text(body: str, begin: int, attempt: Attempt) -> Attempt:
    """Arguments that the data gave as a text with an object in it are written with both pairs of braces."""
    at = _SPACE.match(body, begin).end()
    if body.startswith("{", at):
        try:
            value, _ = decode(body, at)
        except Broken:
            return attempt
        detail = "the arguments are an object in JSON within the braces of the call"
        return replace(attempt, error="arguments_as_text", detail=detail, arguments=value)
    return attempt


def _broken(body: str, start: int, place: int, attempt: Attempt) -> tuple[Attempt, int]:
    stop = body.find(CLOSE, place)
    opened = body.find(OPEN, place, stop if stop >= 0 else len(body))
    if stop >= 0 and opened < 0:
        end = stop + len(CLOSE)
        return replace(attempt, text=body[start:end]), end
    end = opened if opened >= 0 else len(body)
    return unclosed(replace(attempt, text=body[start:end]), CLOSE), end


def _object(body: str, at: int, depth: int) -> tuple[dict, int]:
    """The members up to the closing brace; `at` is behind the opening one."""
    members: dict = {}
    at = _SPACE.match(body, at).end()
    while not body.startswith("}", at):
        key, at = _key(body, at)
        members[key], at = _value(body, at, depth + 1)
        at = _next(body, at, "}")
    return members, at + 1


def _key(body: str, at: int) -> tuple[str, int]:
    if body.startswith((_QUOTE, '"'), at):
        key, at = _value(body, at, 0)
        at = _SPACE.match(body, at).end()
        if not body.startswith(":", at):
            raise _Wrong("no : after a key", at)
        return key, at + 1
    found = _BARE_KEY.match(body, at)
    if not found:
        raise _Wrong(f"no key: {shown(body[at : at + 60])}", at)
    return found[1], found.end()


def _value(body: str, at: int, depth: int) -> tuple[object, int]:
    if depth > _DEEPEST:
        raise _Wrong("nested too deeply", at)
    at = _SPACE.match(body, at).end()
    if body.startswith(_QUOTE, at):
        end = body.find(_QUOTE, at + len(_QUOTE))
        if end < 0:
            raise _Wrong("a text does not end", len(body))
        return body[at + len(_QUOTE) : end], end + len(_QUOTE)
    if body.startswith("{", at):
        return _object(body, at + 1, depth)
    if body.startswith("[", at):
        return _list(body, at + 1, depth)
    if word := _WORD.match(body, at):
        if word[0] not in _WORDS:
            raise _Wrong(f"{word[0]} is no JSON value", at)
        return _WORDS[word[0]], word.end()
    if body.startswith('"', at) or _NUMBER.match(body, at):
        try:
            return decode(body, at)
        except Broken as broken:
            raise _Wrong(broken.reason, at) from None
    raise _Wrong(f"no value: {shown(body[at : at + 60])}", at)


def _list(body: str, at: int, depth: int) -> tuple[list, int]:
    members: list = []
    at = _SPACE.match(body, at).end()
    while not body.startswith("]", at):
        member, at = _value(body, at, depth + 1)
        members.append(member)
        at = _next(body, at, "]")
    return members, at + 1


def _next(body: str, at: int, end: str) -> int:
    at = _SPACE.match(body, at).end()
    if body.startswith(",", at):
        return _SPACE.match(body, at + 1).end()
    if not body.startswith(end, at):
        raise _Wrong(f'no "," or "{end}": {shown(body[at : at + 60])}', at)
    return at
