"""The rows of a table in a text file, Markdown or CSV, each with its line."""

import csv
import io
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

_RULE = re.compile(r":?-+:?")
_CUT = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        line: in the file, from 1.
        cells: full-width characters made narrow, emphasis and outer blanks taken off.
    """

    line: int
    cells: tuple[str, ...]


def read_text(path: Path) -> str:
    """The text of a file as UTF-8, UTF-16 (with its mark) or GB 18030, full-width characters made narrow (NFKC).

    Raises:
        ValueError: it is none of these.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ("utf-16",) if marked else ("utf-8-sig", "gb18030"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return unicodedata.normalize("NFKC", text)
    raise ValueError("it is no text in UTF-8 or GB 18030")


def table_rows(text: str) -> list[Row]:
    """The rows of all Markdown tables of a text, or, where no line has a `|`, of a CSV (comma, semicolon or tab)."""
    lines = text.splitlines()
    if any("|" in line for line in lines):
        found = []
        for number, line in enumerate(lines, 1):
            if "|" in line:
                inner = line.strip().removeprefix("|")
                cells = _CUT.split(inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner)
                found.append(Row(number, tuple(_bare(cell) for cell in cells)))
        return [row for row in found if not all(_RULE.fullmatch(cell) for cell in row.cells)]
    mark = next((mark for mark in ("\t", ";") if sum(mark in line for line in lines) > 1), ",")
    rows, reader, start = [], csv.reader(io.StringIO(text, newline=""), delimiter=mark), 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append(Row(start, tuple(_bare(cell) for cell in cells)))
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"line {start}: {error}") from None
    return rows


def _bare(cell: str) -> str:
    """`**0.85**` -> `0.85`."""
    cell = cell.strip()
    for mark in ("**", "__", "`", "*", "_"):
        if len(cell) > 2 * len(mark) and cell.startswith(mark) and cell.endswith(mark):
            cell = cell[len(mark) : -len(mark)].strip()
    return cell
