"""A terminal that knows what the screen sends, and no more; and a program on it in a pty."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

from rich.cells import cell_len

_PART = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|\x1b\[2J|\x1b\[\?(\d+)([hl])|(\x1b.)|([^\x1b])", re.S)
_UNFINISHED = re.compile(r"\x1b(\[[\d;?]*)?\Z")


class SmallTerminal:
    """Takes bytes. Whatever it does not know is an error; so is a character on the half of a wide one.

    Attributes:
        rows: lists of cells; the second cell of a wide character is "".
        styles: of the cells, their SGR parameters.
        modes: number -> on or off, of those that were set.
        strange: what it does not know.
    """

    def __init__(self, width: int, height: int):
        self.resize(width, height)
        self.modes, self.strange, self._sgr, self._rest = {}, [], "0", ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.row = self.column = 0

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[" "] * width for _ in range(height)]
        self.styles = [["0"] * width for _ in range(height)]

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        whole = _UNFINISHED.sub("", text)
        self._rest = text[len(whole) :]
        for part in _PART.finditer(whole):
            row, column, sgr, mode, value, strange, char = part.groups()
            if row:
                self.row, self.column = int(row) - 1, int(column) - 1
            elif sgr is not None:
                self._sgr = sgr
            elif mode:
                self.modes[int(mode)] = value == "h"
            elif strange:
                self.strange.append(strange)
            elif char:
                self._put(char)
            else:
                self.resize(self.width, self.height)

    def _put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row = min(self.height - 1, self.row + 1)
        elif not char.isprintable():
            self.strange.append(char)
        else:
            width = cell_len(char)
            if self.rows[self.row][self.column : self.column + 1] == [""]:
                self.strange.append(f"on half of a wide character: {char!r}")
            if self.row >= self.height or self.column + width > self.width:
                self.strange.append(f"beyond the edge: {char!r}")
                return
            self.rows[self.row][self.column : self.column + width] = [char, ""][:width]
            self.styles[self.row][self.column : self.column + width] = [self._sgr] * width
            self.column += width
            if self.rows[self.row][self.column : self.column + 1] == [""]:  # the other half of what was there
                self.rows[self.row][self.column] = " "

    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)


class OnTerminal:
    """A program on a pty; its screen, everything it wrote, and how it ended."""

    def __init__(self, words: list[str], width: int = 80, height: int = 24, **environment: str):
        self.screen, self.raw = SmallTerminal(width, height), b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        self.attributes = termios.tcgetattr(self._fd)
        self.size(width, height)

    def size(self, width: int, height: int) -> None:
        """Resize it; the kernel sends SIGWINCH."""
        self.screen.resize(width, height)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self, seconds: float, until: str | None = None) -> str:
        """What is on the screen after so many seconds, or once a text is there."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (until and until in self.screen.text()):
            if select.select([self._fd], [], [], min(left, 0.2))[0]:
                try:
                    data = os.read(self._fd, 65536)
                except OSError:
                    break
                if not data:
                    break
                self.raw += data
                self.screen.feed(data)
        return self.screen.text()

    def press(self, key: str) -> None:
        os.write(self._fd, key.encode())

    def is_as_it_was(self) -> bool:
        """The terminal's own settings."""
        return termios.tcgetattr(self._fd) == self.attributes

    def end(self, number: int | None = None) -> int:
        """Send a signal, wait, and return the exit code (negative: ended by a signal)."""
        if number is not None:
            os.kill(self.pid, number)
        self.read(5.0, "\0")
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._fd)


def watch_words(*words: object) -> list[str]:
    """The call of the verb."""
    return [sys.executable, "-m", "llamafactory_obs.cli", "watch", *map(str, words)]
