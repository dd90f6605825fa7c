"""What the reports of all drills are made of: tables, and a Markdown file with the same as JSON beside it."""

import json
from collections.abc import Sequence
from pathlib import Path

from ..texts import text

REPORT, DATA = "report.md", "report.json"


def write_reports(folder: Path, lines: list[str], data: dict) -> str:
    """Write both; returns why it could not be done, empty where it was: a full disk does not undo a verdict."""
    try:
        (folder / REPORT).write_text("\n".join(lines) + "\n", encoding="utf-8")
        content = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
        (folder / DATA).write_text(content + "\n", encoding="utf-8")
    except OSError as error:
        return text("drill.not_written", folder=folder, error=error.strerror)
    return ""


def table(head: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; text in its cells cannot break it."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def changes(changed: dict) -> list[str]:
    """The table of keys that differ from the config: key -> `{"from", "to"}`."""
    rows = [[f"`{key}`", _code(change["from"]), _code(change["to"])] for key, change in changed.items()]
    return table([text(f"drill.changed.{name}") for name in ("key", "config", "drill")], rows)


def _code(value: object) -> str:
    return text("drill.changed.not_given") if value is None else f"`{value}`"
