"""Writes the sheet's Markdown: whole or not at all, and never over somebody else's file."""

from pathlib import Path

from ..output_file import begins_with, check_output, replace_file
from .markdown import MARK


def check_markdown(path: Path) -> Path:
    """Where a sheet may be written.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that we did not make.
    """
    return check_output(path, kind="sheet", ours=begins_with(MARK))


def write_markdown(sheet: str, path: Path) -> None:
    """Write the file.

    Raises:
        ConfigError: as `check_markdown`.
    """
    replace_file(check_markdown(path), sheet)
