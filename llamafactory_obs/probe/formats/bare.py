"""llama3, mistral: plain JSON, an object or a list of them; and finding such objects in other formats' answers."""

import re
from collections.abc import Mapping
from dataclasses import replace

from ..turns import Attempt
from .build import from_arguments, from_json, from_value, unclosed
from .json_text import TOO_DEEP, Broken, decode, extent, name_in

LLAMA3_OPEN, MISTRAL_OPEN = "<|python_tag|>", "[TOOL_CALLS]"
_ARGS = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*\[ARGS\]\s*(?=\{)")
_SPACE = re.compile(r"\s*")
_KEYS = ("arguments", "parameters")
_KEY_TEXT = re.compile(r'"(?:arguments|parameters)"\s*:')
_OBJECT = re.compile(r'\{\s*"(?:name|arguments|parameters|type|id|function)"\s*:')
_LOOKED_AT = 400  # characters of a broken object in which its name and the key of its arguments must stand


def read_llama3(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """`{"name", "parameters"}` or a list of them; `<|python_tag|>` may stand before it."""
    return _read(body, tools, LLAMA3_OPEN, "parameters")


def read_mistral(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """`[{"name", "arguments"}, ...]`, as a rule after `[TOOL_CALLS]`, which decoding drops as a special token."""
    return _read(body, tools, MISTRAL_OPEN, "arguments")


def _read(body: str, tools: Mapping[str, dict], mark: str, key: str) -> tuple[Attempt, ...]:
    attempts: list[Attempt] = []
    at = 0
    while (start := body.find(mark, at)) >= 0:
        if not attempts and not body[:start].strip():
            start = 0
        marked = body.index(mark, start) + len(mark)
        begin = _SPACE.match(body, marked).end()
        if body.startswith(("{", "["), begin):
            pieces, at = _value(body, start, begin, key)
        elif found := _ARGS.match(body, marked):
            pieces, at = _named(body, start, found)
        else:
            pieces, at = [from_json(body[start:begin], "", key)], begin
        attempts += pieces
    begin = _SPACE.match(body).end()
    if attempts or not body.startswith(("{", "["), begin):
        return tuple(attempts)
    pieces, _ = _value(body, begin, begin, key)
    return tuple(pieces) if _is_call(body[begin:], pieces, tools) else ()


def _is_call(text: str, pieces: list[Attempt], tools: Mapping[str, dict]) -> bool:
    """An answer in JSON is no call: it names no tool and has no arguments."""
    if any(piece.name in tools for piece in pieces):
        return True
    try:
        value, _ = decode(text)
    except Broken:
        return bool(name_in(text[:_LOOKED_AT]) and _KEY_TEXT.search(text))
    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, dict) and any(key in one for key in _KEYS) for one in values)


def _value(body: str, start: int, begin: int, key: str) -> tuple[list[Attempt], int]:
    """The attempts of one JSON value, and where it ends."""
    try:
        value, end = decode(body, begin)
    except Broken:
        end, missing = extent(body, begin)
        attempt = from_json(body[start:end], body[begin:end], key)
        return [unclosed(attempt, f'the closing "{missing}"') if missing else attempt], end
    after = _SPACE.match(body, end).end()
    if body.startswith(("{", "[", ";", ",", "}", "]"), after):
        return [from_json(body[start:], body[begin:], key)], len(body)
    if not isinstance(value, list) or len(value) < 2:
        only = value[0] if isinstance(value, list) and value else value
        return [from_value(body[start:end], only, key)], end
    return _members(body, start, begin, end, key), end


def _members(body: str, start: int, begin: int, end: int, key: str) -> list[Attempt]:
    """One attempt per member of a list that is known to be right; the brackets go with the first and the last."""
    attempts: list[Attempt] = []
    at = begin + 1
    while True:
        value, stop = decode(body, _SPACE.match(body, at).end())
        stop = _SPACE.match(body, stop).end()
        last = body[stop] == "]"
        piece = body[start : end if last else stop + 1]
        attempts.append(from_value(piece, value, key))
        if last:
            return attempts
        start = at = stop + 1


def _named(body: str, start: int, found: re.Match) -> tuple[list[Attempt], int]:
    """`[TOOL_CALLS]name[ARGS]{...}`: how newer Mistral models write it, but not what LlamaFactory teaches."""
    detail = "written as [TOOL_CALLS]name[ARGS]{…}, the form of newer Mistral models"
    try:
        arguments, end = decode(body, found.end())
    except Broken:
        end, _ = extent(body, found.end())
        return [Attempt(body[start:end], False, "no_markup", detail, found[1])], end
    return [replace(from_arguments(body[start:end], found[1], arguments), error="no_markup", detail=detail)], end


def find(text: str, tools: Mapping[str, dict], close: str | None) -> tuple[Attempt, ...]:
    """Objects anywhere in a text that call a known tool, without the marks of their format.

    Args:
        close: the closing mark of the format; where it follows, only the opening one is missing (`stray_markup`).
    """
    attempts: list[Attempt] = []
    at = 0
    for found in _OBJECT.finditer(text) if tools else ():
        start = found.start()
        if start < at:
            continue
        try:
            value, end = decode(text, start)
            attempt = _called(value, tools)
        except Broken as broken:
            if broken.reason == TOO_DEEP:
                break  # each level would be tried anew, and no call is as deep as that
            name = name_in(text[start : start + _LOOKED_AT])
            if name not in tools or not _KEY_TEXT.search(text, start, start + _LOOKED_AT):
                continue
            end, _ = extent(text, start)
            attempt = from_json("", text[start:end])
        if attempt is None:
            continue
        at = end
        error, detail = "no_markup", "a bare JSON object in the text, not as the format has it"
        after = _SPACE.match(text, end).end()
        if close and text.startswith(close, after):
            at = after + len(close)
            error, detail = "stray_markup", f"{close} without the mark that opens the call"
        also = f"; {attempt.detail}" if attempt.error else ""
        attempts.append(replace(attempt, text=text[start:at], error=error, detail=detail + also))
    return tuple(attempts)


def _called(value: object, tools: Mapping[str, dict]) -> Attempt | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in tools:
        return None
    key = next((key for key in _KEYS if key in value), None)
    return from_value("", value, key) if key else None
