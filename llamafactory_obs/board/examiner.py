"""When a run is examined anew: seldom, one at a time, by a process of its own; see `examine.py`."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from ..live import Snapshot

#: seconds between two looks at a run that goes on: at least, and as a multiple of what the last one took
_EVERY, _TIMES = 300.0, 50.0
_LONGEST = 900.0


class Examiner:
    """Takes offers; calls `done(folder, what was found)` from a thread of its own.

    A run is examined when it is first offered with a row, when it has ended or begun again, and else every five minutes
    at most while it goes on.
    """

    def __init__(self, done: Callable[[Path, dict], None]):
        self._done = done
        self._queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._seen: dict[Path, tuple[tuple, float]] = {}  # run -> what it was like, when it may be looked at again
        self._waiting: set[Path] = set()
        self._process: subprocess.Popen | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def offer(self, folder: Path, snapshot: Snapshot | None) -> None:
        """A run that somebody looks at, as it is now."""
        if snapshot is None or not snapshot.step or folder in self._waiting or self._closed:
            return
        state = (snapshot.step, snapshot.segment, snapshot.status == "ended")
        before, again = self._seen.get(folder, ((0, 0, False), 0.0))
        turned = before[1:] != state[1:]
        if state == before or (time.monotonic() < again and not turned):
            return
        self._seen[folder] = (state, again)
        self._waiting.add(folder)
        self._queue.put(folder)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="board-examiner", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End what is under way."""
        self._closed = True
        self._queue.put(None)
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()

    def _work(self) -> None:
        while (folder := self._queue.get()) is not None and not self._closed:
            begun = time.monotonic()
            found = self._run(folder)
            took = time.monotonic() - begun
            self._seen[folder] = (self._seen[folder][0], time.monotonic() + max(_EVERY, _TIMES * took))
            self._waiting.discard(folder)
            if not self._closed:
                self._done(folder, found | {"time": time.time()})

    def _run(self, folder: Path) -> dict:
        words = [sys.executable, "-m", f"{__package__}.examine", str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:
            self._process = subprocess.Popen(words, env=environment, **pipes)
            if self._closed:
                self._process.kill()
            out, _ = self._process.communicate(timeout=_LONGEST)
            return orjson.loads(out)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return {"error": f"diagnose took longer than {_LONGEST:.0f} s"}
        except (OSError, ValueError):
            return {"error": f"diagnose failed here; run `llamafactory-obs diagnose {folder}`"}
        finally:
            self._process = None
