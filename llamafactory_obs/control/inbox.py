"""The job's inbox: a thread of the first rank looks for commands, so that the training thread never touches the disk.

A command is one file, `inbox/<id>.json`: `{"by", "queue", "order"}`; only `order` is needed. It is
taken by deleting it, before it is carried out, so that none is carried out twice.
"""

import contextlib
import errno
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from .folder import ANSWERS, INBOX, KEPT_ANSWERS, keep_newest, read_file, write_file
from .order import LASTING, Order, parse
from .presence import BEAT, Presence

#: seconds between two looks; longer where a look takes more than a tenth of it
POLL = 0.2
#: a file that is not JSON may still be being written, for so many seconds
_TORN = 2.0
#: a command that waits for the next start of training does so for a day
QUEUE_AGE = 86400.0
#: commands carried out at the end of one step, and files read in one look
TOGETHER, _AT_ONCE, _AT_START = 8, 2_000, 20_000


@dataclass(frozen=True)
class Sent:
    """A command as it has arrived. `by`: who sent it (pid, host); `changed`: when, by the clock of the file system."""

    id: str
    order: Order
    by: dict = field(default_factory=dict)
    queue: bool = False
    changed: float = 0.0

    def to_dict(self) -> dict:
        """What the other ranks need of it."""
        return {"id": self.id, "order": self.order.given(), "by": self.by}

    @classmethod
    def from_dict(cls, content: dict) -> "Sent":
        """The reverse."""
        return cls(content["id"], parse(content["order"]), content["by"])


class Inbox:
    """Commands that have arrived and wait for the end of a step.

    Args:
        folder: the control folder.
        facts: for `job.json`.

    Attributes:
        waiting: what has arrived, oldest first.
        problems: lines about files that are no commands, for the training thread to tell.
    """

    def __init__(self, folder: Path, facts: dict):
        self._folder = folder
        self._presence = Presence(folder, facts)
        self.waiting: deque[Sent] = deque()
        self.problems: deque[str] = deque()
        self._known: dict[str, int] = {}  # name -> inode of each file that has been read
        self._handle: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> list[Sent]:
        """Take the folder; what has waited for this start of training comes back, what was left behind is put aside.

        Raises:
            OSError: the folder cannot be used; `FileExistsError`: another job has it.
        """
        for part in (INBOX, ANSWERS):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        handle = os.open(self._folder / INBOX, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not self._presence.take():
            os.close(handle)
            raise FileExistsError(errno.EEXIST, "another job is running in this folder")
        self._handle = handle
        keep_newest(self._folder / ANSWERS, KEPT_ANSWERS)
        queued = []
        for sent in self._look(_AT_START):
            if self._is_left_behind(sent):
                continue
            if self._presence.since - sent.changed > QUEUE_AGE:
                if self.claim(sent):
                    self._refuse(
                        sent, f"it has waited longer than {QUEUE_AGE / 3600:.0f} hours for a start of training"
                    )
            elif self.claim(sent):
                queued.append(sent)
        return queued

    def start(self) -> None:
        """Look for commands from now on."""
        self._thread = threading.Thread(target=self._work, name="llamafactory-obs-control", daemon=True)
        self._thread.start()

    def claim(self, sent: Sent) -> bool:
        """Take a command out of the folder. False where it is gone, or cannot be taken."""
        try:
            os.unlink(f"{sent.id}.json", dir_fd=self._handle)
        except FileNotFoundError:  # withdrawn by whoever sent it
            return False
        except OSError as error:
            why = f"it cannot be taken out of the inbox ({error.strerror})"
            self.problems.append(f"not carried out: {sent.order.words()} ({sent.id}): {why}")
            return False
        self._known.pop(f"{sent.id}.json", None)
        return True

    def answer(self, id: str, content: dict) -> None:
        """What has become of a command."""
        with contextlib.suppress(OSError):
            write_file(self._folder / ANSWERS / f"{id}.json", {"id": id, "time": time.time(), **content})

    def close(self, step: int) -> None:
        """The job has ended after this step. What nobody has taken is answered."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self.waiting.extend(sent for sent in self._look() if not sent.queue)
            for sent in self.waiting:
                if self.claim(sent):
                    self._refuse(sent, f"training ended after step {step}, before it could be carried out")
            os.close(self._handle)
            self._handle = None
        self.waiting.clear()
        self._presence.leave(step)

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        beaten, pause = time.monotonic(), POLL
        while not self._stop.wait(pause):
            start = time.monotonic()
            with contextlib.suppress(OSError):
                for sent in self._look():
                    if not sent.queue and not self._is_left_behind(sent):
                        self.waiting.append(sent)
            if start - beaten >= BEAT:
                beaten = start
                self._presence.beat()
            pause = max(POLL, 10 * (time.monotonic() - start))  # thousands of files must not slow the training down

    def _is_left_behind(self, sent: Sent) -> bool:
        """Was it sent before this job was there, and not meant to wait? It is answered and taken away."""
        if sent.queue or sent.changed >= self._presence.since:
            return False
        if self.claim(sent):
            self._refuse(sent, "it was sent while no job was running, so it is not carried out")
        return True

    def _look(self, limit: int = _AT_ONCE) -> list[Sent]:
        """New commands, oldest first; what is none is told of once."""
        with os.scandir(self._handle) as entries:
            all_files = [(entry.name, entry.inode()) for entry in entries if not entry.name.startswith(".")]
        new = [(name, inode) for name, inode in all_files if self._known.get(name) != inode]
        found, bad = [], []
        for name, inode in sorted(new)[:limit]:
            self._known[name] = inode
            try:
                found.append(self._read(name))
            except FileNotFoundError:
                self._known.pop(name, None)
            except (OSError, ValueError, ConfigError) as error:
                if self._may_be_torn(name):
                    self._known.pop(name, None)
                    continue
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                bad.append(f"{name[:60]!r} ({reason})")
        if bad:
            more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
            self.problems.append(f"no command, left where it is: {', '.join(bad[:5])}{more}")
        return sorted(found, key=lambda sent: (sent.changed, sent.id))

    def _read(self, name: str) -> Sent:
        if not name.endswith(".json"):
            raise ValueError("a command's name ends in .json")
        content = read_file(name, folder=self._handle)
        queue, by = content.get("queue") is True, content.get("by")
        order = parse(content.get("order"))
        if queue and not set(order.given()) <= set(LASTING):
            raise ConfigError(f"only {', '.join(LASTING)} can wait for the next start of training")
        by = [(str(key)[:20], value) for key, value in by.items()] if isinstance(by, dict) else []
        sender = {key: value for key, value in by[:5] if isinstance(value, (int, str)) and len(str(value)) <= 100}
        changed = os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_ctime
        return Sent(name.removesuffix(".json"), order, sender, queue, changed)

    def _may_be_torn(self, name: str) -> bool:
        """Was it written a moment ago, perhaps by somebody who is not done?"""
        try:
            written = os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_mtime
        except OSError:
            return False
        return self._thread is not None and 0 <= time.time() - written < _TORN

    def _refuse(self, sent: Sent, why: str) -> None:
        self.answer(sent.id, refusal(why))
        self.problems.append(f"not carried out: {sent.order.words()} ({sent.id}): {why}")


def refusal(why: str) -> dict:
    """The answer to a command that is not carried out at all."""
    return {"state": "finished", "refused": why, "results": []}
