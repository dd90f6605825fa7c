"""Is a job running in this folder? It holds a lock on `job.json` for as long as it lives, and touches it now and then.

The lock is one of `fcntl.lockf`: the kernel lets go of it when the process dies, by whatever death, and a forked data
loader worker does not inherit it. Where the file system knows no locks, or the job is on another machine whose locks
are not seen here, its touches decide. Their times are those of the machine that keeps the files, whose clock may differ
from ours, so a touch that comes while somebody looks counts more than the age that our clock gives the last one.

Who looks only reads.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from .folder import JOB, read_file

#: seconds between two touches, and after how many a job on another machine is taken for gone
BEAT, SILENT = 2.0, 20.0
#: seconds to wait for a touch where the clock alone says that the job is gone, and by how much clocks may differ
_PATIENCE, _SKEW = 2.5 * BEAT, 3600.0
_MOST_WATCHED = 1000
#: job file -> what was seen of its touches by this process
_watched: dict[Path, "_Touch"] = {}
_watching = threading.Lock()


class Presence:
    """The job's side: it is here. To be used by one process only, on its first rank.

    Args:
        folder: the control folder; it must exist.
        facts: what `job.json` says beside pid, host and start.

    Attributes:
        since: when it came, by the clock of the file system.
    """

    def __init__(self, folder: Path, facts: dict):
        self._path, self._facts = folder / JOB, facts
        self._handle: int | None = None
        self.since = 0.0

    def take(self, patience: float = 1.0) -> bool:
        """Say that the job is here. False: another job holds this folder.

        Args:
            patience: seconds for a look that somebody takes at the lock just now.

        Raises:
            OSError: the file cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self._path, flags, 0o644)
        os.utime(handle)
        self.since = os.fstat(handle).st_mtime
        locked, until = False, time.monotonic() + patience
        while not locked:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    break  # no locks here
                if time.monotonic() > until:
                    os.close(handle)
                    return False
                time.sleep(0.05)
        self._handle = handle
        self._content = {"pid": os.getpid(), "started": time.time(), "locked": locked, **machine(), **self._facts}
        self._write(self._content)
        return True

    def beat(self) -> None:
        """Still here."""
        with contextlib.suppress(OSError):
            os.utime(self._handle)

    def leave(self, step: int) -> None:
        """The job has ended after this step."""
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            self._write(self._content | {"ended": time.time(), "step": step})
        with contextlib.suppress(OSError):
            os.close(self._handle)  # and the lock with it
        self._handle = None

    def _write(self, content: dict) -> None:
        text = json.dumps(content).encode() + b"\n"
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text, 0)


@dataclass(frozen=True)
class Seen:
    """What somebody else sees of the job.

    Attributes:
        state: `running`; `ended`: it has said so; `killed`: it has not, and it is gone; `silent`: it is on another
            machine and has not been heard of for `age` seconds; `never`: no job has been here.
        job: what `job.json` says.
        age: seconds since it was heard of, by our clock.
    """

    state: Literal["running", "ended", "killed", "silent", "never"]
    job: dict
    age: float = 0.0


def look(folder: Path, patience: float = _PATIENCE) -> Seen:
    """Look for the job of a control folder. Nothing is written.

    Not for use in the job's own process beyond asking whether it runs.

    Args:
        patience: seconds to wait for a touch where nothing but the clock says that the job is gone; 0 for who looks
            again and again, and so sees the touches anyway.
    """
    path = folder / JOB
    job, touched = _read(path)
    here = {name: job.get(name) for name in machine()} == machine()
    if here and job.get("pid") == os.getpid():  # closing a second handle would drop our own lock
        return Seen("ended" if "ended" in job else "running", job)
    held = _is_held(path)
    if held:
        return Seen("running", job)
    age = max(0.0, time.time() - touched)
    if "ended" in job:
        return Seen("ended", job, age)
    if not job:
        return Seen("never", job)
    if here and job.get("locked") is True and held is False:
        return Seen("killed", job, age)
    return _by_touches(path, job, touched, patience)


def _by_touches(path: Path, job: dict, touched: float, patience: float) -> Seen:
    """Is a job there whose lock tells nothing? See the head of this file."""
    until = time.monotonic() + patience
    while True:
        quiet, moved = _watch(path, touched)
        apart = time.time() - touched
        if "ended" in job:
            return Seen("ended", job, max(0.0, apart))
        if quiet < SILENT and (moved or abs(apart) < SILENT):
            return Seen("running", job, quiet if moved else max(quiet, apart))
        if quiet >= SILENT or abs(apart) > _SKEW or time.monotonic() >= until:
            return Seen("silent", job, max(quiet, apart))
        time.sleep(0.1)
        again, later = _read(path)
        job, touched = (again, later) if again else (job, touched)  # it may be written at this moment


class _Touch(NamedTuple):
    """A touch that was seen. `time`: by the clock of the files. `seen`, `looked`: by our monotonic clock, when it was
    first seen and when somebody looked last. `moved`: it came while somebody looked, so it is not older than `seen`
    and `SILENT` together."""

    time: float
    seen: float
    looked: float
    moved: bool


def _watch(path: Path, touched: float) -> tuple[float, bool]:
    """Seconds since this touch was first seen here, and whether it came after another one that was seen here."""
    now = time.monotonic()
    with _watching:
        before = _watched.pop(path, None)
        if before is None or touched != before.time:
            moved = before is not None and touched > before.time and now - before.looked < SILENT
            held = _Touch(touched, now, now, moved)
        else:
            held = before._replace(looked=now)
        _watched[path] = held
        if len(_watched) > _MOST_WATCHED:
            del _watched[next(iter(_watched))]
    return now - held.seen, held.moved


def _read(path: Path) -> tuple[dict, float]:
    """What the job's file says, and when it was touched. Opening it makes a network file system ask for the time."""
    try:
        return read_file(path), path.stat().st_mtime
    except (OSError, ValueError):
        return {}, 0.0


def machine() -> dict:
    """Which machine this is: its name, and the id of its kernel's start where there is one."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"host": socket.gethostname(), "boot": boot}


def _is_held(path: Path) -> bool | None:
    """Does a process hold the lock? None where that cannot be told."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return True if error.errno in (errno.EACCES, errno.EAGAIN) else None
    finally:
        os.close(handle)
