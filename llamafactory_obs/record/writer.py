"""Writes the record. One `write()` per row, nothing buffered: SIGKILL loses no row that was handed over."""

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from .reader import has_record, last_segment
from .schema import CONTROL, FOLDER, PROBE, RUN, SCHEMA_VERSION, UNSENT, encode


class RecordWriter:
    """The files of one record, opened for one start of training (a segment).

    A full disk or a vanished folder never raises: the row is dropped whole (no half line stays behind), `on_error` is
    called once with the reason, and every later row tries again.

    Args:
        output_dir: the run's output folder; the record goes to its `obs/`.
        resumed: training goes on from a step > 0: append a segment. Otherwise an older record in the folder is moved to
            `obs/archive/<time>/`; it is never overwritten.
        on_error: called with one line when rows begin to get lost, and with None when writing works again.
    """

    def __init__(self, output_dir: str | os.PathLike, resumed: bool, on_error: Callable[[str | None], None]):
        self._set_up(output_dir, on_error)
        try:
            if not resumed:
                self._archive()
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._fail(FOLDER, error)
        with contextlib.suppress(OSError):
            self.segment = last_segment(self.folder) + 1  # 0 in a new folder; never one that is there already

    @classmethod
    def joining(
        cls, output_dir: str | os.PathLike, on_error: Callable[[str | None], None] = lambda problem: None
    ) -> "RecordWriter":
        """A second writer (another rank, a companion process) for the segment that is being written."""
        writer = cls.__new__(cls)
        writer._set_up(output_dir, on_error)
        writer.segment = max(0, last_segment(writer.folder))
        return writer

    def _set_up(self, output_dir: str | os.PathLike, on_error: Callable[[str | None], None]) -> None:
        self.folder = Path(output_dir) / FOLDER
        self.dropped, self.segment = 0, 0
        self._on_error = on_error
        self._files: dict[str, int] = {}
        self._failing: set[str] = set()  # files that could not be written last time
        self._identity: dict | None = None

    def append(self, file: str, row: dict) -> None:
        """Append one row; `segment` and, where missing, `time` (Unix seconds) are added."""
        line = encode({"step": row["step"], "time": time.time(), "segment": self.segment, **row})
        try:
            write_whole(self._open(file), line)
        except OSError as error:
            self.dropped += 1
            self._fail(file, error)
            return
        if file in self._failing:
            self._failing.discard(file)
            self._on_error(None)

    def write_run(self, identity: dict) -> None:
        """Write `run.json` whole and atomically."""
        self._identity = identity
        temporary = self.folder / f".{RUN}.{os.getpid()}"
        try:
            temporary.write_bytes(encode({"schema_version": SCHEMA_VERSION, **identity}, indent=1))
            os.replace(temporary, self.folder / RUN)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            self._fail(RUN, error)

    def close(self) -> None:
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()

    def _open(self, file: str) -> int:
        if file in self._files and os.fstat(self._files[file]).st_nlink == 0:
            os.close(self._files.pop(file))
            self._removed(file)
        if file not in self._files:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            cut_torn_tail(handle)
            self._files[file] = handle
        return self._files[file]

    def _removed(self, file: str) -> None:
        """Somebody has removed the record while it was written: say so and begin it anew."""
        self._on_error(f"{self.folder / file} was removed while training; what it held is lost")
        self._failing.add(file)
        if self._identity is not None and not (self.folder / RUN).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.write_run(self._identity)

    def _archive(self) -> None:
        if not has_record(self.folder):
            return
        target = self.folder / "archive" / time.strftime("%Y%m%d-%H%M%S")
        number = 1
        while target.exists():
            number += 1
            target = target.with_name(f"{target.name.split('.')[0]}.{number}")
        target.mkdir(parents=True)
        for item in self.folder.iterdir():
            # a probe may be at work there, its ledger knows contents, not runs; a command may wait for this very start,
            # and so do messages that are not sent yet
            if item.name not in ("archive", PROBE, CONTROL, UNSENT):
                item.rename(target / item.name)

    def _fail(self, file: str, error: OSError) -> None:
        if file not in self._failing and FOLDER not in self._failing:
            self._failing.add(file)
            self._on_error(f"{file} of the run record cannot be written ({self.folder}): {error.strerror or error}")


def write_whole(handle: int, line: bytes) -> None:
    """All of the line or nothing: what a full disk took of it is cut off again."""
    size = os.fstat(handle).st_size
    try:
        if os.write(handle, line) != len(line):
            raise OSError(errno.ENOSPC, "No space left on device")
    except OSError:
        os.ftruncate(handle, size)
        raise


def cut_torn_tail(handle: int) -> None:
    """Remove what a killed writer left after the last newline, so that the next row starts on its own line."""
    size = os.fstat(handle).st_size
    position, tail = size, b""
    while position > 0 and b"\n" not in tail:
        chunk = min(65536, position)
        position -= chunk
        tail = os.pread(handle, chunk, position) + tail
    keep = position + tail.rfind(b"\n") + 1
    if keep < size:
        os.ftruncate(handle, keep)
