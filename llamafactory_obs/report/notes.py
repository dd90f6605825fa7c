"""`report --note`: words of a person, added to the record while the run goes on or afterwards.

They stand in a file of their own, `obs/notes.jsonl`: the training appends to the others, and a row of ours between its
rows would have to know its segment. Two people at once take turns by a lock on it.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from ..errors import ConfigError
from ..identity.redact import redact_text
from ..record.reader import find_folder, read_rows
from ..record.schema import NOTES, encode
from ..record.writer import cut_torn_tail, write_whole

#: characters of one note
LONGEST = 10_000


def check_note(path: str | os.PathLike, words: str) -> Path:
    """The file that a note would be added to.

    Raises:
        ConfigError: there is no record, no words, or too many words.
    """
    if not words.strip():
        raise ConfigError("--note: say something")
    if len(words.strip()) > LONGEST:
        raise ConfigError(
            f"--note: at most {LONGEST} characters, got {len(words.strip())}; keep a longer text in a file"
        )
    return find_folder(path) / NOTES


def add_note(path: str | os.PathLike, words: str, step: int) -> tuple[Path, int]:
    """Append a note. Returns the file and how many notes it holds now.

    Args:
        path: the run's output folder, or its `obs/` folder.
        words: as said; what looks like a secret is replaced.
        step: the last step that the record has.

    Raises:
        ConfigError: as `check_note`, or the file cannot be written.
    """
    file = check_note(path, words)
    row = {"step": step, "time": time.time(), "text": redact_text(words.strip())}
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: one person alone is still right
                fcntl.lockf(handle, fcntl.LOCK_EX)
            cut_torn_tail(handle)
            write_whole(handle, encode(row))
        finally:
            os.close(handle)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror or error})") from None
    return file, len(read_rows(file)[0])
