"""`... | head`: a reader of stdout or stderr that stops reading is no error."""

import os
import select
import sys
from typing import TextIO

#: exit code of a program that writes to a pipe without a reader: 128 + SIGPIPE
NOBODY_READS = 141


def nobody_reads(error: BaseException) -> bool:
    """Does an error come from stdout or stderr whose reader is gone, and not from another pipe or connection?"""
    return isinstance(error, BrokenPipeError) and any(map(_is_lost, _streams()))


def silence() -> None:
    """Let what is still to come for such a reader go nowhere, the interpreter's last flush included."""
    for stream in filter(_is_lost, _streams()):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _streams() -> list[TextIO]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def _is_lost(stream: TextIO) -> bool:
    """Asked for nothing, poll(2) reports an error on a pipe whose other end is closed, and that alone."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # no stream of the system
        return False
    return bool(poll.poll(0))
