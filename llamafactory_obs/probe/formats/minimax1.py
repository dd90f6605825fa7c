"""minimax1: `<tool_calls>`, one JSON object per line, `</tool_calls>`; one block for all calls."""

import re
from collections.abc import Mapping

from ..turns import Attempt
from .build import from_json, unclosed
from .json_text import Broken, decode

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"
STRAY = (CLOSE,)
_SPACE = re.compile(r"\s*")
_BLANKS = re.compile(r"[ \t]*")
_PIECE_END = re.compile(r"\n(?=[ \t]*\{)|</?tool_calls>")


def read(body: str, tools: Mapping[str, dict]) -> tuple[Attempt, ...]:
    """One attempt per object; those of a block that is not closed are all unclosed, for no parser sees any of them."""
    attempts: list[Attempt] = []
    at = 0
    while (start := body.find(OPEN, at)) >= 0:
        pieces, at, closed = _block(body, start)
        attempts += pieces if closed else [unclosed(piece, CLOSE) for piece in pieces]
    return tuple(attempts)


def _block(body: str, start: int) -> tuple[list[Attempt], int, bool]:
    pieces: list[Attempt] = []
    begin, at = start, _SPACE.match(body, start + len(OPEN)).end()
    while True:
        if not pieces and (at == len(body) or body.startswith((OPEN, CLOSE), at)):
            end = at + len(CLOSE) if body.startswith(CLOSE, at) else at
            return [from_json(body[start:end], "")], end, body.startswith(CLOSE, at)
        stop = _object_end(body, at)
        after = _SPACE.match(body, stop).end()
        closed = body.startswith(CLOSE, after)
        end = after + len(CLOSE) if closed else after
        pieces.append(from_json(body[begin:end], body[at:stop]))
        if closed or not body.startswith("{", after):
            return pieces, end, closed
        begin = at = after


def _object_end(body: str, at: int) -> int:
    """Where the object of a line ends: a second one on the same line belongs to it and makes it several."""
    try:
        _, end = decode(body, at)
    except Broken:
        end = at
    else:
        blank = _BLANKS.match(body, end).end()
        if blank == len(body) or body[blank] == "\n" or body.startswith(CLOSE, blank):
            return end
        if body[blank] not in "{[,;}]":
            return end
    found = _PIECE_END.search(body, end)
    return found.start() if found else len(body)
