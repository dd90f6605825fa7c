"""The whole new lines of a file that somebody else appends to."""

import os
from collections.abc import Iterator
from pathlib import Path

from ..logs.jsonl import parse_block
from ..logs.record import restored

_BLOCK = 1 << 18
#: bytes of one line: a longer one is no row (blocks of zeros after a crash of the machine), and is not kept in memory
_LONGEST_LINE = 32 << 20
#: bytes at the beginning by which a file is known again
_HEAD = 256
#: Unix seconds, and a whole number, that no record has; larger ones are no float
_LATEST, _LARGEST = 1e12, 1 << 63


class Tail:
    """Reads a JSONL file from where it stopped the last time.

    A line without its newline is not read yet: its writer may be at it, or dead. Only what has a newline counts as
    read, so the writer may cut a torn tail off.

    Attributes:
        replaced: the file is another one than the last time: moved away, removed, cut short, or begun anew. What was
            read of it no longer counts; make a new `Tail`.
        torn: lines so far that were no JSON object.
        modified: when the file was last written, Unix seconds.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: tuple[int, int] | None = None
        self._offset = self._size = 0
        self._head = b""
        self._skips = False  # what comes up to the next newline belongs to a line that is too long
        self.replaced = False
        self.torn = 0
        self.modified = 0.0

    def rows(self) -> Iterator[list[dict]]:
        """The rows behind the last one, in blocks, so that a long file is never in memory as a whole."""
        try:
            status = os.stat(self._path)
        except OSError:
            self.replaced = self._file is not None
            return
        file = (status.st_dev, status.st_ino)
        if self._file not in (None, file) or status.st_size < self._offset:
            self.replaced = True
            return
        if status.st_size == self._size:
            return
        try:
            handle = open(self._path, "rb")  # noqa: SIM115 (closed below; a file may vanish at any moment)
        except OSError:
            return
        with handle:
            head = handle.read(_HEAD)
            if self._head and not head.startswith(self._head):
                self.replaced = True
                return
            self._file, self._size, self.modified = file, status.st_size, status.st_mtime
            self._head = head[: head.rfind(b"\n") + 1] or (head if len(head) == _HEAD else b"")
            yield from self._blocks(handle)

    def _blocks(self, handle) -> Iterator[list[dict]]:
        handle.seek(self._offset)
        rest: list[bytes] = []
        held = 0
        while block := handle.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                whole = b"".join((*rest, block[:cut]))
                self._offset += len(whole)
                rest, held = [], 0
                yield self._parsed(whole[whole.find(b"\n") + 1 :] if self._skips else whole)
                self._skips = False
            rest.append(block[cut:])
            held += len(block) - cut
            if held > _LONGEST_LINE:
                self.torn += not self._skips
                self._offset += held
                self._skips, rest, held = True, [], 0

    def _parsed(self, lines: bytes) -> list[dict]:
        values, torn = parse_block(lines)
        rows = [row for row in values if type(row) is dict and _is_sound(row)]
        self.torn += torn + len(values) - len(rows)
        return rows


def _is_sound(row: dict) -> bool:
    """What every reader relies on. Puts the numbers back that are not finite, where they stand in the row itself."""
    if type(row.get("step", 0)) is not int or type(row.get("segment", 0)) is not int:
        return False
    time = row.get("time", 0.0)
    if type(time) not in (int, float) or not abs(time) < _LATEST:
        return False
    if any(type(value) is int and abs(value) >= _LARGEST for value in row.values()):
        return False
    return restored(row)
