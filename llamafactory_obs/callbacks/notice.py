"""The notice before a machine is taken back: a signal that asks for a last checkpoint instead of ending the process."""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass

#: A launcher passes a signal on to processes that may have got it themselves (SLURM sends it to the whole step,
#: torchrun forwards it): within so many seconds it is the same notice.
TOGETHER_S = 2.0
#: what says that there is a launcher
_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
#: From SIGTERM to SIGKILL where nobody says otherwise: torchrun's own default (`--shutdown-timeout`), Kubernetes'
#: terminationGracePeriodSeconds, SLURM's KillWait and the notice of a preempted Google Cloud machine are all 30 s.
GRACE_S = 30.0
_TORCHRUN_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@dataclass(frozen=True)
class Notice:
    """One notice: the signal's name, and when it came, Unix seconds."""

    signal: str
    time: float


class Notices:
    """Catches signals. The handlers that were there before are called as well, and put back at the end.

    An exit that such a handler asks for (`sys.exit`, KeyboardInterrupt) is put off at the first signal: the checkpoint
    comes first. A second signal ends the process as it would have without us.

    Args:
        names: of the signals, e.g. SIGTERM.
        together_s: seconds within which further signals belong to the first.
    """

    def __init__(self, names: list[str], together_s: float):
        self._names, self._together_s = names, together_s
        self._before: dict[int, object] = {}
        self._first: float | None = None
        self._come: deque[Notice] = deque()

    def install(self) -> str:
        """Begin to listen. Returns why that cannot be; "" where it can."""
        if threading.current_thread() is not threading.main_thread():
            return "training does not run in the main thread, where alone Python lets signals be caught"
        for name in self._names:
            number = getattr(signal, name)
            self._before[number] = signal.signal(number, self._handle)
        return ""

    def remove(self) -> None:
        """Put back what was there before, unless somebody else has taken the signal since."""
        for number, before in self._before.items():
            with contextlib.suppress(ValueError):  # not the main thread: then nothing was installed
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def take(self) -> Notice | None:
        """The notice that has come since the last call."""
        return self._come.popleft() if self._come else None

    @property
    def heard(self) -> bool:
        """Has a notice come that is not dealt with?"""
        return self._first is not None

    def rearm(self) -> None:
        """The notice is dealt with and the run goes on: the next signal is a new notice."""
        self._first = None

    def _handle(self, number: int, frame) -> None:
        now, before = time.monotonic(), self._before.get(number)
        if self._first is None:
            self._first = now
            self._come.append(Notice(signal.Signals(number).name, time.time()))
            if callable(before):
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    before(number, frame)
        elif now - self._first >= self._together_s:
            self.remove()
            if callable(before):
                before(number, frame)
            elif before is signal.SIG_DFL:
                os.kill(os.getpid(), number)


def parse_signals(given: str | list) -> list[str]:
    """`SIGTERM`, `SIGTERM, SIGUSR1` or a list of such names.

    Raises:
        ValueError: a name that is no signal, or one that no process can catch.
    """
    names = given.replace(",", " ").split() if isinstance(given, str) else [str(one) for one in given]
    for name in names:
        if not (name.startswith("SIG") and isinstance(getattr(signal, name, None), signal.Signals)):
            raise ValueError(f"signals: {name!r} is no signal (SIGTERM, SIGUSR1, SIGUSR2 ...)")
        if name in ("SIGKILL", "SIGSTOP"):
            raise ValueError(f"signals: {name} cannot be caught by any process")
    if not names:
        raise ValueError("signals: name at least one, or set on_notice: off")
    return names


def together_s() -> float:
    """`Notices`' argument, by the launcher that started this process."""
    return TOGETHER_S if any(name in os.environ for name in _LAUNCHERS) else 0.0


def grace_s() -> float:
    """Seconds from the notice to SIGKILL as far as they are known: torchrun's, else what is common."""
    try:
        return float(os.environ.get(_TORCHRUN_GRACE, GRACE_S))
    except ValueError:
        return GRACE_S
