"""The screen's loop: look, draw, send what changed, listen for a key."""

import contextlib
import signal
import time

from ..live import Follower, Snapshot
from ..texts import text
from .canvas import Canvas
from .layout import draw
from .line import line
from .outcome import code
from .terminal import Terminal
from .writing import Writing

#: seconds within which two resizes are one
_SETTLE = 0.05


def watch(follower: Follower, interval: float, stream, writing: Writing) -> int:
    """Until a key or a signal says to leave; then the last line stays in the terminal.

    Keys: `q` leaves (so does Ctrl-C), `p` pauses and goes on, Ctrl-L sends the whole screen again.

    Returns:
        The exit code; 128 + its number where SIGTERM, SIGHUP or SIGQUIT has ended it.
    """
    shown: Canvas | None = None
    paused = False
    with Terminal(stream) as terminal:
        try:
            snapshot, until = follower.update(), time.monotonic() + interval
            while True:
                shown = _show(terminal, snapshot, shown, writing, paused)
                key = terminal.key(until - time.monotonic())
                if terminal.signal is not None or key in ("q", "Q", "\x03"):
                    break
                if key == "p":
                    paused = not paused
                elif key == "\x0c":
                    shown = None
                elif key == "":
                    time.sleep(_SETTLE)
                if time.monotonic() >= until:
                    snapshot = snapshot if paused else follower.update()
                    until = time.monotonic() + interval
        except OSError:  # the terminal is gone
            terminal.signal = terminal.signal or signal.SIGHUP
    return _leave(snapshot, terminal.signal, stream, writing)


def _show(terminal: Terminal, snapshot: Snapshot, shown: Canvas | None, writing: Writing, paused: bool) -> Canvas:
    size = terminal.size()
    if terminal.fresh or shown is None or (shown.width, shown.height) != size:
        terminal.fresh, shown = False, None
    canvas = draw(snapshot, *size, writing, paused)
    terminal.send(canvas.changes(shown))
    return canvas


def _leave(snapshot: Snapshot, ended_by: int | None, stream, writing: Writing) -> int:
    """The last line, in the terminal as it was."""
    with contextlib.suppress(OSError):
        print(line(snapshot, writing), file=stream)
        if snapshot.status in ("training", "evaluating", "saving"):
            print(text("watch.line.left"), file=stream)
        stream.flush()
    if ended_by is not None and ended_by != signal.SIGINT:
        return 128 + ended_by
    return code(snapshot)
