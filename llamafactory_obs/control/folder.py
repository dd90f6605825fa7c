"""`<output_dir>/obs/control/`: what lies where, and how its small files are written and read.

Whoever may write to this folder can command the job; nothing else is asked. What is read is JSON and is checked: never
unpickled, never evaluated. A file that is a link, no ordinary file, or larger than `LARGEST` is not read.
"""

import contextlib
import json
import os
import stat
from pathlib import Path

from ..record.schema import CONTROL, FOLDER

#: the job's presence, commands to it, its answers
JOB, INBOX, ANSWERS = "job.json", "inbox", "answers"
#: bytes of one file; a command has about 200
LARGEST = 16 << 10
#: the job keeps so many answers
KEPT_ANSWERS = 100


def control_folder(output_dir: str | os.PathLike) -> Path:
    """The control folder of a run, given its output folder."""
    return Path(output_dir) / FOLDER / CONTROL


def write_file(path: Path, content: dict) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(content, stream, ensure_ascii=False)
            stream.write("\n")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_file(path: str | os.PathLike, folder: int | None = None) -> dict:
    """One small JSON object.

    Args:
        folder: descriptor of the folder that `path` is in.

    Raises:
        OSError: it is not there or cannot be read; a link is not followed.
        ValueError: it is no ordinary file, too large, or no JSON object.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not an ordinary file")
        text = os.read(handle, LARGEST + 1)
    finally:
        os.close(handle)
    if len(text) > LARGEST:
        raise ValueError(f"larger than {LARGEST >> 10} KiB")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def keep_newest(folder: Path, count: int) -> None:
    """Delete the oldest of our own files in `folder`, so that `count` are left."""
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        for name in names[: max(0, len(names) - count)]:
            (folder / name).unlink()
