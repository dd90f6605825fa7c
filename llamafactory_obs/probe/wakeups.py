"""File system events, to look at once instead of at the next poll. Hints only: the scan alone decides.

inotify is silent on NFS and on many bind mounts, a watch dies with the folder it was set on, and the kernel's limits
may be used up. So nothing rests on an event; a watcher without any only looks `poll_s` later. Only the output folder
itself is watched, not what is in it: that a checkpoint has come is enough to look more often until it is complete.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..checkpoint.files import STATE
from .scan import step_of


class Wakeups:
    """Sets `event` when a checkpoint has come to the output folder, or the final model.

    Args:
        output_dir: need not exist; it may be removed and made again.
        event: set from the observer's thread.
        say: called once with one line where there are no events to be had.
    """

    def __init__(self, output_dir: Path, event: threading.Event, say: Callable[[str], None]):
        self._folder, self._event, self._say = output_dir, event, say
        self._observer = None
        self._watched: tuple | None = None  # the folder that the watch is on, by device and inode
        self._off = False
        self._mutex = threading.Lock()
        self._hints: dict[str, float] = {}

    def tend(self) -> None:
        """Begin to watch, or again where the folder is a new one or the observer has died. Never raises."""
        if self._off:
            return
        try:
            entry = os.stat(self._folder)
        except OSError:
            self.stop()
            return
        identity = (entry.st_dev, entry.st_ino)
        if self._observer is not None and self._watched == identity and self._observer.is_alive():
            return
        self.stop()
        try:
            self._observer = self._start()
            self._watched = identity
        except ImportError:
            self._give_up("watchdog is not installed (pip install watchdog)")
        except FileNotFoundError:
            pass  # removed just now: the next look sees it
        except OSError as error:  # the limits on inotify instances or watches
            self._give_up(f"no file system events here: {error.strerror or error}")

    def hints(self) -> dict[str, float]:
        """Names of checkpoint folders that were seen to come, and when (Unix seconds), since the last call."""
        with self._mutex:
            hints, self._hints = self._hints, {}
        return hints

    def stop(self) -> None:
        """Stop watching; `tend` would begin again."""
        observer, self._observer, self._watched = self._observer, None, None
        if observer is not None:
            observer.stop()
            observer.join(timeout=2.0)

    def _start(self):
        from watchdog.events import FileSystemEventHandler
        from watchdog.observers import Observer

        logging.getLogger("watchdog").addHandler(logging.NullHandler())  # its complaints are no news for people
        handler = FileSystemEventHandler()
        handler.dispatch = self._on_event
        observer = Observer()
        observer.daemon = True
        observer.schedule(handler, str(self._folder), recursive=False)
        observer.start()
        return observer

    def _on_event(self, event) -> None:
        """Called in the observer's thread, for every event: the log files in the folder are written all the time."""
        if event.event_type not in ("created", "moved", "modified"):
            return
        path = Path(os.fsdecode(event.dest_path or event.src_path))
        if path.parent != self._folder:
            return
        if step_of(path.name) is not None:
            if event.event_type != "modified":
                with self._mutex:
                    self._hints.setdefault(path.name, time.time())
            self._event.set()
        elif path.name == STATE:
            self._event.set()

    def _give_up(self, why: str) -> None:
        self._off = True
        self._say(f"{why}; looking every few seconds instead")
