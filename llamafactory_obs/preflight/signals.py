"""SIGTERM and SIGHUP end us as Ctrl-C does: what is temporary goes away, a training that we started ends."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise SystemExit(128 + number), so that every `finally` runs.

    A signal that somebody else handles or ignores (`nohup`) is left to them. Outside the main thread, where Python lets
    nobody handle signals, nothing changes.
    """

    def stop(number, frame):
        raise SystemExit(128 + number)

    before = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
