"""glm4: the function's name on the first line, its arguments as JSON on the next; one call per answer."""

import re
from collections.abc import Mapping
from dataclasses import replace

from ..turns import Attempt
from .build import from_arguments, unclosed
from .json_text import Broken, decode, extent, parse

_CALL = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*\r?\n\s*(?=[{\[\"])", re.MULTILINE)


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """The call that the answer begins with; further down only a known name counts, and its form is not right."""
    attempts: list[Attempt] = []
    at, beginning = 0, len(body) - len(body.lstrip())
    for found in _CALL.finditer(body):
        name, begin = found[1], found.end()
        first = found.start() <= beginning
        if found.start() < at or not (name in tools or (first and body[begin] == "{")):
            continue
        attempt, at = _attempt(body, found.start(), name, begin)
        if not first:
            where = "text stands before it" if not attempts else "a second call; the format has one per answer"
            attempt = replace(attempt, error="no_markup", detail=where)
        attempts.append(attempt)
    return tuple(attempts)


def _attempt(body: str, start: int, name: str, begin: int) -> tuple[Attempt, int]:
    try:
        arguments, end = decode(body, begin)
    except Broken:
        end, missing = extent(body, begin)
        parsed = parse(body[begin:end])
        broken = Attempt(body[start:end], True, parsed.error, parsed.detail, name, parsed.value)
        return (unclosed(broken, f'the closing "{missing}"') if missing else broken), end
    return from_arguments(body[start:end], name, arguments), end
