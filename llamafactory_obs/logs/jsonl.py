"""JSON Lines in blocks: a million rows are parsed by a few hundred calls."""

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

import orjson

from .printed import parse_printed

BLOCK = 1 << 16  # a few hundred rows: their dicts stay in the processor's cache, bigger blocks take twice as long
_BLANK_LINES = re.compile(rb"\n[ \t\r\n]*\n")


def blocks(handle: BinaryIO) -> Iterator[bytes]:
    """The file in pieces that end with a line."""
    rest: list[bytes] = []
    while block := handle.read(BLOCK):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((*rest, block[:cut]))
            rest = []
        rest.append(block[cut:])
    if any(rest):
        yield b"".join(rest)


def parse_block(block: bytes) -> tuple[list, int]:
    """The JSON values of whole lines, and the number of lines that are none.

    A line that strict JSON refuses (NaN, Infinity, a printed Python dict) is read by more tolerant means.
    """
    text = _BLANK_LINES.sub(b"\n", block.replace(b"\x00", b"")).strip()
    if not text:
        return [], 0
    try:
        return orjson.loads(b"[" + text.replace(b"\n", b",") + b"]"), 0
    except orjson.JSONDecodeError:
        pass
    values, torn = [], 0
    for line in text.split(b"\n"):
        if line.strip():
            value = parse_line(line)
            torn += value is None
            if value is not None:
                values.append(value)
    return values, torn


def parse_line(line: bytes) -> object | None:
    """One line's value, None where it has none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        text = line.decode("utf-8", "replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parse_printed(text)
