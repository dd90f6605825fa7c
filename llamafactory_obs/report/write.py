"""Writes the sheet's Markdown: whole or not at all, and never over somebody else's file."""

import os
import tempfile
from pathlib import Path

from ..errors import ConfigError
from .markdown import MARK


def write_markdown(sheet: str, path: Path) -> None:
    """Write the file.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that we did not make.
    """
    path = Path(os.path.realpath(path))
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file such as {path / 'sheet.md'}")
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: the folder {path.parent} does not exist; make it first")
        if os.path.lexists(path) and not _is_ours(path):
            raise ConfigError(f"{path} exists and is no sheet of ours: not overwritten; name another file")
        replace_file(path, sheet.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from None


def replace_file(path: Path, content: bytes) -> None:
    """Put a file there in one moment.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
        try:
            handle.write(content)
            handle.close()
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(handle.name, 0o666 & ~mask)
            os.replace(handle.name, path)
        except OSError:
            os.unlink(handle.name)
            raise


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(len(MARK))
    return not start or start == MARK.encode()
