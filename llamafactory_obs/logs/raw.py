"""A file becomes a table of rows in the file's order, whatever form it has. By content: the name says nothing."""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from .console import read_console
from .content import HEAD, encoding
from .curves import Source
from .document import facts_of, read_document, rows_of
from .jsonl import blocks, parse_block
from .names import LOSS, our_name
from .table import Table

FORMS = (
    "a record (obs/), trainer_log.jsonl, trainer_state.json, logging.jsonl or a console log with {'loss': ...} lines"
)

FIRST_LINES = 5


@dataclass
class Raw:
    """Rows in the file's order, and what the file says about the run.

    facts   `max_steps`, `logging_steps`, `num_train_epochs` ... where the file says them
    work    what a console says was running: training, prediction, evaluation
    """

    table: Table
    source: Source
    facts: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    work: set[str] = field(default_factory=set)


def read_raw(path: Path) -> Raw:
    """Read a file.

    Raises:
        ConfigError: it cannot be read or holds no rows of a log.
    """
    try:
        with open(path, "rb") as handle:
            head = handle.read(HEAD)
            name = encoding(path, head)
            handle.seek(0)
            if name in ("utf-8", "utf-8-sig") and _has_rows_in_lines(head):
                if name == "utf-8-sig":
                    handle.read(3)
                return _lines(handle)
            text = handle.read().decode(name, "replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    if name not in ("utf-8", "utf-8-sig") and _has_rows_in_lines(text[:HEAD].encode()):
        return _lines(io.BytesIO(text.encode()))
    start = text.lstrip()[:1]
    if start in ("{", "[") and (found := read_document(text)) is not None and (found[0] or not found[2]):
        return _document(path, *found)
    return _console(path, text)


def _has_rows_in_lines(head: bytes) -> bool:
    """Is one of the first lines a row in JSON, and not the file as a whole one document?"""
    for line in [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()][:FIRST_LINES]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if line.lstrip().startswith((b"{", b"[")):
                return False
            continue
        if isinstance(value, dict) and rows_of(value) is None and any(our_name(key) != key for key in value):
            return True
    return False


def _lines(handle: io.BufferedIOBase) -> Raw:
    table, facts, notes, histories = Table(), {}, [], []
    skipped = 0
    for block in blocks(handle):
        values, torn = parse_block(block)
        if set(map(type, values)) != {dict} or b'"log_history"' in block:
            rows = [value for value in values if isinstance(value, dict)]
            skipped += len(values) - len(rows)
            histories += [row for row in rows if isinstance(row.get("log_history"), list)]
            values = [row for row in rows if not isinstance(row.get("log_history"), list)]
        skipped += torn
        table.add(values)
    for value in histories:
        facts |= facts_of(value)
    if histories:
        notes.append("a line holds a whole log_history: left out, its rows stand in lines of their own")
        if LOSS not in table.columns:
            notes = ["the rows are those of the log_history in the last line"]
            table = Table()
            table.add(rows_of(histories[-1]))
    if skipped:
        notes.append(f"{skipped} torn or foreign lines skipped")
    return Raw(table, "trainer_log" if "current_steps" in table.keys else "logging_jsonl", facts, notes)


def _document(path: Path, rows: list[dict], facts: dict, torn: bool) -> Raw:
    notes = ["the end of the file is torn off: read up to there"] if torn else []
    table = Table()
    table.add(rows)
    if rows and not any(our_name(key) != key for key in table.keys):
        raise ConfigError(f"{path}: JSON, but no training log; expected {FORMS}")
    return Raw(table, "trainer_state", facts, notes)


def _console(path: Path, text: str) -> Raw:
    found = read_console(text)
    if not found.rows and not found.work:
        raise ConfigError(f"{path}: no rows of a training log in it; expected {FORMS}")
    table = Table()
    table.add(found.rows)
    facts = {"max_steps": found.total, "num_train_epochs": found.epochs}
    return Raw(table, "console", {name: value for name, value in facts.items() if value}, [], found.work)
