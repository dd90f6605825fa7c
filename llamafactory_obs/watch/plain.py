"""Without a screen: one line for each look that brings news."""

import time

from ..live import Follower, Snapshot
from .outcome import code

#: seconds that a run must have ended before the last line: the final evaluation and a verdict come just behind
_LINGER = 3.0


def follow(follower: Follower, request, stream, render) -> int:
    """Print a line whenever something is new, until the run has ended.

    Args:
        request: the verb's words.
        render: a snapshot as one line.

    Returns:
        The exit code.
    """
    told, ended = -1, None
    while True:
        snapshot = follower.update()
        ended = None if snapshot.status != "ended" else time.monotonic() if ended is None else ended
        over = request.once or (ended is not None and _is_over(snapshot, time.monotonic() - ended))
        if snapshot.version != told or told < 0:
            told = snapshot.version
            print(render(snapshot), file=stream, flush=True)
        if over:
            return code(snapshot)
        time.sleep(min(request.interval, 1.0) if ended is not None else request.interval)


def _is_over(snapshot: Snapshot, seconds: float) -> bool:
    """Nothing is to be expected any more: at once where it ended long ago."""
    return seconds >= _LINGER or snapshot.heard is None or snapshot.now - snapshot.heard >= _LINGER
