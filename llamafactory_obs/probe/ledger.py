"""What has become of every checkpoint: `obs/probe/ledger.jsonl`, appended to, the last row of each counts.

And the lock beside it: one process at a time probes the checkpoints of an output folder.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from ..errors import ConfigError
from ..record.reader import read_rows
from ..record.schema import encode
from ..record.writer import cut_torn_tail, write_whole
from .copies import Taken

LEDGER = "ledger.jsonl"

State = Literal["taken", "done", "retry", "failed", "missed", "abandoned", "skipped"]
#: To be probed; and: not to be touched again unless its content changes.
WAITING, SETTLED = ("taken", "retry"), ("done", "failed", "skipped")


class Later(Exception):
    """Raised by a probe that cannot work now, through no fault of the checkpoint (the server is down)."""


class Hopeless(Exception):
    """Raised by a probe that will not work however often it is tried (the backend refuses the checkpoint)."""


@dataclass(frozen=True)
class Key:
    """What is probed once: this content, under this name, at this step, with this suite.

    A resumed run that saves another checkpoint-20 makes another key; a folder that was touched or copied again does
    not. `content` is "" where none was taken (`missed`, `abandoned`, `skipped` by `--latest-only`).
    """

    step: int
    name: str
    content: str
    suite: str


@dataclass(frozen=True)
class Entry:
    """The last row of one key.

    Attributes:
        why: the reason, for people; "" for `taken` and most `done`.
        attempt: how often the probe has failed on it.
        not_before: Unix seconds; a retry has to wait until then.
        taken: the private copy, where there is or was one.
    """

    key: Key
    state: State
    time: float
    why: str = ""
    attempt: int = 0
    not_before: float = 0.0
    signature: str = ""
    taken: Taken | None = None


class Lock:
    """The right to probe the checkpoints of one output folder.

    Args:
        folder: `obs/probe/`; made where missing.
    """

    def __init__(self, folder: Path):
        self._folder, self._pid = folder, folder / "pid"
        self._lock: FileLock | None = None
        self._identity: tuple | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            ConfigError: another process has it, or the folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._folder / "lock", timeout=0, thread_local=False)
            lock.acquire()
            with contextlib.suppress(OSError):  # a full disk: it is only for the message below
                self._pid.write_text(f"{os.getpid()}\n")
            self._lock, self._identity = lock, identity(self._folder)
        except Timeout:
            raise ConfigError(
                f"another probe watches {self._folder.parent.parent} (pid {self._owner()}); "
                "stop that one first, or leave it to it"
            ) from None
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be written: {error.strerror or error}") from None

    def held(self) -> bool:
        """Is it still ours? Not after the folder was removed: another process may have the lock of a new one."""
        return self._lock is not None and identity(self._folder) == self._identity

    def release(self) -> None:
        if self._lock is not None:
            if self.held():
                self._pid.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def _owner(self) -> str:
        try:
            return self._pid.read_text().strip() or "unknown"
        except OSError:
            return "unknown"


class Ledger:
    """The ledger of one output folder, for one suite. Safe to use from several threads; one process at a time.

    A row is one write. A row that cannot be written (full disk) counts in memory at once and is written with the next
    one: forgetting that a checkpoint is done would probe it twice.

    Args:
        folder: `obs/probe/`; must exist.
        suite: SHA-256 of the suite; rows of other suites are kept in the file and do not count.
        say: called with one line when rows cannot be written.
        outdated: says of an entry that is settled in the file that it no longer counts; it becomes "stale", in memory.
    """

    def __init__(
        self,
        folder: Path,
        suite: str,
        say: Callable[[str], None],
        outdated: Callable[[Entry], bool] = lambda entry: False,
    ):
        self._file, self._suite, self._say = folder / LEDGER, suite, say
        self._mutex = threading.RLock()
        self._unwritten: list[bytes] = []
        self._entries: dict[str, dict[Key, Entry]] = {}  # by name
        self._handle = -1
        self._load()
        for entry in self.all():
            if entry.state in SETTLED and outdated(entry):
                self._keep(replace(entry, state="stale"))

    def reopen(self) -> None:
        """The file was removed with its folder: begin it anew with all that is known.

        Raises:
            OSError: it cannot be opened; what is known stays known.
        """
        with self._mutex:
            known, before = self.all(), self._handle
            self._load()
            os.close(before)
            there = {entry.key for entry in _entries(self._file, self._suite)}
            for entry in known:
                if entry.key not in there:
                    self._unwritten.append(encode(_row(entry)))
            self._flush()

    def _load(self) -> None:
        self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        cut_torn_tail(self._handle)
        for entry in _entries(self._file, self._suite):
            self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        self._entries.setdefault(entry.key.name, {})[entry.key] = entry

    def put(self, state: State, name: str, step: int, why: str = "", taken: Taken | None = None, **more) -> Entry:
        """Append one row.

        Args:
            taken: the private copy that it is about; without one `content` is "".
            more: `attempt`, `not_before`, and `signature` where nothing was taken.
        """
        key = Key(step, name, taken.content if taken else "", self._suite)
        signature = taken.signature if taken else ""
        entry = Entry(key, state, time.time(), why, **{"signature": signature, **more}, taken=taken)
        with self._mutex:
            self._keep(entry)
            self._unwritten.append(encode(_row(entry)))
            self._flush()
        return entry

    def renew(self, taken: Taken) -> Entry | None:
        """The same content again (touched, copied, or saved by a resumed run): its entry gets the new signature.

        Returns:
            The entry; None where this content is not known, or not taken care of (`missed`).
        """
        with self._mutex:  # the other thread may be about to mark it as done
            key = Key(taken.step, taken.name, taken.content, self._suite)
            entry = self._entries.get(taken.name, {}).get(key)
            if entry is None or entry.taken is None or entry.state not in SETTLED + WAITING:
                return None
            same = replace(entry.taken, signature=taken.signature)
            more = {"attempt": entry.attempt, "not_before": entry.not_before}
            return self.put(entry.state, taken.name, taken.step, entry.why, same, **more)

    def all(self) -> list[Entry]:
        """All entries, in no order."""
        with self._mutex:
            return [entry for entries in self._entries.values() for entry in entries.values()]

    def of(self, name: str) -> list[Entry]:
        """The entries of one name, in no order."""
        with self._mutex:
            return list(self._entries.get(name, {}).values())

    def waiting(self) -> list[Entry]:
        """What is taken and has to be probed: oldest step first, a checkpoint before the final model of its step."""
        found = [entry for entry in self.all() if entry.state in WAITING and entry.taken]
        return sorted(found, key=lambda entry: (entry.key.step, not entry.key.name.startswith("checkpoint-")))

    def close(self) -> None:
        with self._mutex:
            self._flush()
            os.close(self._handle)
            self._handle = -1

    def _flush(self) -> None:
        said = len(self._unwritten) > 1
        try:
            while self._unwritten:
                write_whole(self._handle, self._unwritten[0])
                del self._unwritten[0]
        except OSError as error:
            if not said:
                self._say(f"{self._file} cannot be written, later again: {error.strerror or error}")


def identity(folder: Path) -> tuple | None:
    """Which folder is it, by device and inode; None where there is none."""
    try:
        entry = os.stat(folder)
    except OSError:
        return None
    return entry.st_dev, entry.st_ino


def _entries(file: Path, suite: str) -> list[Entry]:
    entries = []
    for row in read_rows(file)[0]:
        with contextlib.suppress(KeyError, TypeError):  # a row of somebody else's making
            if row["suite"] == suite:
                entries.append(_entry(row))
    return entries


def _row(entry: Entry) -> dict:
    row = {"time": entry.time, "state": entry.state, "name": entry.key.name, "step": entry.key.step}
    row |= {"content": entry.key.content, "suite": entry.key.suite, "signature": entry.signature}
    row |= {field: getattr(entry, field) for field in ("why", "attempt", "not_before") if getattr(entry, field)}
    return row | ({key: value for key, value in entry.taken.row().items() if key not in row} if entry.taken else {})


def _entry(row: dict) -> Entry:
    taken = Taken.from_row(row) if row["content"] and "path" in row else None
    return Entry(
        key=Key(row["step"], row["name"], row["content"], row["suite"]),
        state=row["state"],
        time=row["time"],
        why=row.get("why", ""),
        attempt=row.get("attempt", 0),
        not_before=row.get("not_before", 0.0),
        signature=row.get("signature", ""),
        taken=taken,
    )
