"""The terminal while the screen is up: another screen, single keys, its size; and as it was when we leave."""

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty

#: alternate screen, hidden cursor, no wrapping at the right edge: a character that is wider there than we think
#: must not break the next row
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
#: the terminal shows what is between them at once, where it knows these; others ignore them
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_DEADLY = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class Terminal:
    """A context: inside it the screen is ours.

    Ctrl-C, SIGTERM, SIGHUP and SIGQUIT end the waiting; Ctrl-Z gives the terminal back until `fg`. However the context
    is left, the terminal is as it was. (After SIGKILL nobody can do that: `reset` does.)

    Args:
        stream: a terminal to write to. Keys come from stdin.

    Attributes:
        signal: the one that wants us to leave, None while there is none.
        fresh: nothing of ours is on the screen any more (resize, `fg`): all of it must be sent again.
    """

    def __init__(self, stream):
        self._stream, self._keys = stream, sys.stdin.fileno()
        self.signal: int | None = None
        self.fresh = True

    def __enter__(self) -> "Terminal":
        self._saved = termios.tcgetattr(self._keys)
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        handlers = {one: self._end for one in _DEADLY} | {signal.SIGWINCH: self._resized, signal.SIGTSTP: self._stop}
        self._before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._leave()
        for one, handler in self._before.items():
            signal.signal(one, handler)
        os.close(self._wake)
        os.close(self._woken)

    def size(self) -> tuple[int, int]:
        """Columns and rows, now."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            size = shutil.get_terminal_size((80, 24))
        return max(1, size.columns or 80), max(1, size.lines or 24)

    def send(self, text: str) -> None:
        """Write to the screen, as one.

        Raises:
            OSError: the terminal is gone.
        """
        if text:
            self._write(f"{_BEGIN}{text}{_END}")

    def key(self, seconds: float) -> str | None:
        """The next key within so many seconds; "" where something else ended the waiting (resize, a signal)."""
        if self.signal is not None:
            return ""
        ready, _, _ = select.select([self._keys, self._wake], [], [], max(0.0, seconds))
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 1024)
            return ""
        if not ready:
            return None
        read = os.read(self._keys, 64).decode("utf-8", "replace")
        if not read:  # the terminal is gone
            self.signal = signal.SIGHUP
        return read[:1]

    def _enter(self) -> None:
        tty.setcbreak(self._keys, termios.TCSANOW)
        self._write(_ENTER)
        self.fresh = True

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._keys, termios.TCSANOW, self._saved)

    def _write(self, text: str) -> None:
        data = text.encode(self._stream.encoding or "ascii", "replace")
        while data:
            try:
                data = data[os.write(self._stream.fileno(), data) :]
            except BlockingIOError:  # somebody has switched the terminal to non-blocking, and it is slow
                select.select([], [self._stream.fileno()], [])

    def _end(self, number: int, frame) -> None:
        self.signal = self.signal or number
        self._nudge()

    def _resized(self, number: int, frame) -> None:
        self.fresh = True
        self._nudge()

    def _stop(self, number: int, frame) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when we go on."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(OSError, termios.error):
            self._enter()
        self._nudge()

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._woken, b".")
