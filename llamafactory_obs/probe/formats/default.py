"""default: `Action: name`, then `Action Input:` and the arguments as JSON."""

import re
from collections.abc import Mapping

from ..turns import Attempt
from .build import from_arguments, unclosed
from .json_text import Broken, decode, extent, parse

# ernie_vl writes its role before it.
_ACTION = re.compile(
    r"^[ \t]*(?:Assistant:[ \t]*)?Action:[ \t]*([^\s:]+)[ \t]*$", re.MULTILINE
)  # ernie_vl: its role too
_INPUT = re.compile(r"\s*Action Input:\s*(?:```(?:json)?\s*)?")  # LlamaFactory's prompt shows it in a code fence
_FENCE = re.compile(r"\s*```")
_TAIL = "Action Input:"


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """Every line `Action: name` that `Action Input:` follows; without it only a known name counts."""
    attempts: list[Attempt] = []
    at = 0
    for found in _ACTION.finditer(body):
        if found.start() < at:
            continue
        given = _INPUT.match(body, found.end())
        if given:
            attempt, at = _attempt(body, found.start(), found[1], given.end())
        elif found[1] in tools:
            attempt, at = _without_input(body, found)
        else:
            continue
        attempts.append(attempt)
    return tuple(attempts)


def _without_input(body: str, found: re.Match) -> tuple[Attempt, int]:
    rest = body[found.end() :].strip() if len(body) - found.end() < 100 else "more"
    if _TAIL.startswith(rest):  # the answer was cut here
        attempt = Attempt(body[found.start() :], False, "unclosed", f'"{_TAIL}" is missing', found[1])
        return attempt, len(body)
    return Attempt(found[0], True, "no_arguments", f'no "{_TAIL}" after the action', found[1]), found.end()


def _attempt(body: str, start: int, name: str, begin: int) -> tuple[Attempt, int]:
    try:
        arguments, end = decode(body, begin)
    except Broken:
        return _broken(body, start, name, begin)
    fence = _FENCE.match(body, end)
    end = fence.end() if fence else end
    return from_arguments(body[start:end], name, arguments), end


def _broken(body: str, start: int, name: str, begin: int) -> tuple[Attempt, int]:
    following = _ACTION.search(body, begin)
    limit = following.start() if following else len(body)
    if body.startswith(("{", "["), begin):
        end, missing = extent(body[:limit], begin)
    else:
        line = body.find("\n", begin, limit)
        end, missing = (line if line >= 0 else limit), ("" if body[begin:limit].strip() else "}")
    parsed = parse(body[begin:end])
    attempt = Attempt(body[start:end], True, parsed.error, parsed.detail, name, parsed.value)
    return (unclosed(attempt, f'the closing "{missing}"') if missing else attempt), end
