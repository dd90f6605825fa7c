"""One thread beside the training, for what reads or deletes large files; the training thread takes its results."""

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from ..texts import speaking


class Aside:
    """Does one job after the other. A job returns a function, which the training thread calls, or None.

    Args:
        name: of the thread.
        nice: its niceness (Linux keeps one for each thread): training comes first.
    """

    def __init__(self, name: str, nice: int = 10):
        self._nice = nice
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._results: deque[Callable[[], None]] = deque()
        self._open = 0
        self._idle = threading.Condition()
        self.stopped = threading.Event()
        """Set when nobody waits for results any more: a long job should end."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Callable[[], None] | None]) -> None:
        """Put a job at the end of the queue."""
        with self._idle:
            self._open += 1
        self._jobs.put(job)

    def take(self) -> None:
        """Call what the finished jobs have returned; raises what a job raised."""
        while self._results:
            self._results.popleft()()

    def wait(self, seconds: float) -> bool:
        """Take results until all jobs are done, those that results submit too. False where time ran out."""
        deadline = time.monotonic() + seconds
        while True:
            with self._idle:
                done = self._idle.wait_for(lambda: not self._open, max(0.0, deadline - time.monotonic()))
            self.take()
            if not done:
                return False
            if not self._open:
                return True

    def close(self, seconds: float = 5.0) -> None:
        """No more jobs; the one under way is waited for this long."""
        self.stopped.set()
        self._jobs.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
        while (job := self._jobs.get()) is not None and not self.stopped.is_set():
            try:
                with speaking("en"):  # it goes into the record
                    result = job()
            except Exception as error:  # belongs to the callback: it is raised where that is guarded
                result = _raising(error)
            if result is not None:
                self._results.append(result)
            with self._idle:
                self._open -= 1
                self._idle.notify_all()


def _raising(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it
