"""Single files of a checkpoint, read so that no content can hurt; what is not whole is said in one line, by name."""

import codecs
import errno
import json
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import BinaryIO

from ..texts import text

STATE = "trainer_state.json"
ADAPTER_CONFIG, CONFIG = "adapter_config.json", "config.json"

#: The limit of the safetensors library itself (`MAX_HEADER_SIZE`).
MAX_HEADER_BYTES = 100_000_000
#: A JSON file above this is none that a Trainer or tokenizer writes (a state with a million rows has 200 MB).
MAX_JSON_BYTES = 1 << 30
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Incomplete(Exception):
    """The folder, or a file of it, is not whole; the text names it and says what is wrong."""


class Vanished(Incomplete):
    """Deleted while it was looked at."""


class reading:
    """Turns the errors of reading one file into Incomplete, with its name."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise Incomplete(text("checkpoint.files.missing", name=self.name)) from None
        if isinstance(error, OSError):
            raise unreadable(self.name, error) from None


def unreadable(name: str, error: OSError) -> Incomplete:
    """The error of the operating system as ours."""
    if error.errno == errno.ESTALE:  # NFS: deleted by another machine
        return Vanished(text("checkpoint.files.vanished", name=name))
    if error.errno == errno.ELOOP:
        return Incomplete(text("checkpoint.files.loop", name=name))
    return Incomplete(text("checkpoint.files.unreadable", name=name, error=error.strerror or error))


def open_file(file: Path) -> BinaryIO:
    """Open a regular file for reading; links are followed, a pipe or device is never waited for.

    Raises:
        Incomplete: it is no file.
        OSError: it cannot be opened.
    """
    handle = os.open(file, _FLAGS)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise Incomplete(f"{file.name} is {'a folder' if stat.S_ISDIR(mode) else 'a pipe or a device'}, not a file")
    return os.fdopen(handle, "rb")


def read_header(file: Path) -> tuple[int, dict]:
    """The header of a safetensors file, checked against the file's size.

    The layout: 8 bytes little-endian length of the header, the header as JSON, the tensors' bytes without gaps.

    Returns:
        The offset of the first tensor's bytes, and the header: tensor name -> {"dtype", "shape", "data_offsets"}.

    Raises:
        Incomplete: the file is cut off, empty, only sized in advance, or no safetensors file.
    """
    name = file.name
    with reading(name), open_file(file) as handle:
        size = os.fstat(handle.fileno()).st_size
        length = int.from_bytes(handle.read(8), "little")
        if size < 8:
            raise Incomplete(text("checkpoint.files.too_few", name=name, size=size))
        if not 2 <= length <= MAX_HEADER_BYTES or 8 + length > size:
            raise Incomplete(text("checkpoint.files.header", name=name, length=length, size=size))
        raw = handle.read(length)
    try:
        header = json.loads(raw)
        tensors = [value for key, value in header.items() if key != "__metadata__"]
        end = max([value["data_offsets"][1] for value in tensors], default=0)
        whole = 8 + length + int(end)
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise Incomplete(text("checkpoint.files.no_json", name=name)) from None
    if whole != size:
        raise Incomplete(text("checkpoint.files.size", name=name, size=size, whole=whole))
    return 8 + length, header


def read_step(folder: Path) -> int:
    """`global_step` of a folder's `trainer_state.json`.

    Raises:
        Incomplete: it is missing, torn or says no step.
    """
    state = read_json(folder / STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    if type(step) is not int:
        raise Incomplete(text("checkpoint.files.no_step", file=STATE))
    return step


def read_json(file: Path):
    """One JSON file. The bare `NaN` that transformers writes into its state is taken.

    It must be UTF-8 without a byte order mark: transformers, PEFT and tokenizers read no other.

    Raises:
        Incomplete: it is missing, empty, torn, in another encoding, or too large to be one.
    """
    with reading(file.name), open_file(file) as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > MAX_JSON_BYTES:
            raise Incomplete(text("checkpoint.files.too_large", file=file.name, size=size))
        raw = handle.read()
    if not raw.strip():
        raise Incomplete(text("checkpoint.files.empty", file=file.name))
    if raw.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Incomplete(text("checkpoint.files.byte_order_mark", file=file.name))
    try:
        return json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Incomplete(text("checkpoint.files.torn_json", file=file.name, bytes=len(raw))) from None


def check_torch_file(file: Path) -> None:
    """A torch file is a zip archive; its central directory is written last. Nothing in it is loaded.

    Raises:
        Incomplete: the directory is missing or does not belong to the file.
    """
    with reading(file.name), open_file(file) as handle:
        try:
            whole = zipfile.is_zipfile(handle) and any(
                name.endswith("/data.pkl") for name in zipfile.ZipFile(handle).namelist()
            )
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            whole = False
        if not whole:
            size = os.fstat(handle.fileno()).st_size
            raise Incomplete(text("checkpoint.files.torn_torch", file=file.name, size=size))


def file_named(why: str) -> str:
    """The first file that a sentence names, in whatever language it is; the first word where none is."""
    found = re.search(r"[\w./-]*[A-Za-z0-9][._-][\w./-]*[A-Za-z0-9]", why, re.ASCII)
    return found[0] if found else why.partition(" ")[0].rstrip(":：")
