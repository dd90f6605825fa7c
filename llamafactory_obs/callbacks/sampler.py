"""Readings from a thread of their own, and what they come to over each step."""

import threading
import time
from collections.abc import Iterable
from typing import Protocol

#: the first two readings are so far apart: rates need two, and NVML's counters more than 0.1 s
_FIRST_GAP_S = 0.15
#: how old a value may be that stands for a step without a reading of its own: seconds, and readings
_STALE_S, _STALE_READINGS = 30.0, 5
#: seconds that the end waits for a reading that is being made
_JOIN_S = 2.0


class Source(Protocol):
    """Something that can be read, never from two threads at once."""

    def read(self) -> dict[str, float]:
        """Name -> number, now."""

    def close(self) -> None:
        """No more readings."""


class Sampler:
    """Reads all sources every `interval` seconds in a daemon thread, at the beginning more often.

    It holds no lock while it reads, so a data loader that forks meanwhile gets none that nobody releases.

    Args:
        sources: what is read.
        interval: seconds.
        highest, lowest: names whose highest (lowest) reading counts for a step; of all others the mean.

    Attributes:
        cpu_s: CPU time that the thread has taken so far.
    """

    def __init__(self, sources: Iterable[Source], interval: float, highest: set[str], lowest: set[str]):
        self._sources, self._interval = list(sources), interval
        self._highest, self._lowest = highest, lowest
        self._lock = threading.Lock()
        self._window: dict[str, list[float]] = {}  # name -> sum, count, highest, lowest since the last `take`
        self._newest: dict[str, tuple[float, float]] = {}  # name -> value, when
        self._error: Exception | None = None
        self._over = threading.Event()
        self.cpu_s = 0.0
        self._thread = threading.Thread(target=self._watch, name="llamafactory-obs-system", daemon=True)

    def start(self) -> None:
        """Take the first readings, so that the first step has numbers too, and start the thread."""
        self._read()
        self._over.wait(_FIRST_GAP_S)
        self._read()
        self._thread.start()

    def take(self) -> dict[str, float]:
        """What the readings since the last call come to; for a name without one, its newest value.

        Raises:
            Exception: what a source raised.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            window, self._window = self._window, {}
            newest = dict(self._newest)
        oldest = time.monotonic() - max(_STALE_S, _STALE_READINGS * self._interval)
        found = {name: value for name, (value, at) in newest.items() if at >= oldest}
        for name, (total, count, highest, lowest) in window.items():
            found[name] = highest if name in self._highest else lowest if name in self._lowest else total / count
        return found

    def close(self) -> None:
        """Stop the thread. One that hangs in a reading is left behind: as a daemon it holds up nobody."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            for source in self._sources:
                source.close()

    def _watch(self) -> None:
        gap = min(_FIRST_GAP_S, self._interval)  # the first steps get numbers of their own soon
        while not self._over.wait(gap):
            gap = min(2 * gap, self._interval)
            began = time.thread_time()
            try:
                self._read()
            except Exception as error:
                with self._lock:
                    self._error = error
                return
            self.cpu_s += time.thread_time() - began

    def _read(self) -> None:
        for source in self._sources:
            values = source.read()
            now = time.monotonic()
            with self._lock:
                for name, value in values.items():
                    self._newest[name] = (value, now)
                    total, count, highest, lowest = self._window.get(name, (0.0, 0, value, value))
                    self._window[name] = [total + value, count + 1, max(highest, value), min(lowest, value)]
