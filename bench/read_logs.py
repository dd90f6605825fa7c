"""A tolerant reader for published training logs, for the benchmarks: figures only, no judgement.

Reads trainer_state.json (with `log_history`), a bare list of rows, JSON Lines, several objects glued together, and the
`{'loss': ...}` lines that the Trainer prints between progress bars. NaN and Infinity literals and numbers given as
text are numbers. A row is (step, grad_norm, loss); what a row does not have is None.
"""

import ast
import csv
import json
import re
from pathlib import Path

_PRINTED = re.compile(r"\{'[^{}\n]*\}")


def to_number(value: object) -> float | None:
    """A number, or a text that is one; None for everything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(str(value).strip().rstrip("%"))
    except ValueError:
        return None


def _objects(text: str) -> list:
    """Every JSON value in the text, whatever lies between them; printed Python dicts where there is no JSON."""
    found, decoder, at = [], json.JSONDecoder(), 0
    while (match := re.compile(r"[\[{]").search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, match.start())
            found.append(value)
        except ValueError:
            at = match.start() + 1
    if any(isinstance(v, dict) for v in found):
        return found
    for match in _PRINTED.finditer(text):
        try:
            found.append(ast.literal_eval(re.sub(r"(?<=: )(nan|inf|-inf)\b", r"'\1'", match.group())))
        except (ValueError, SyntaxError):
            continue
    return found


def _rows(value: object) -> list[dict]:
    if isinstance(value, list):
        return [row for item in value for row in _rows(item)]
    if not isinstance(value, dict):
        return []
    return _rows(value["log_history"]) if isinstance(value.get("log_history"), list) else [value]


def read_log(path: Path) -> list[tuple[int, float | None, float | None]]:
    """The training rows of one file, in file order: (step or running number, grad_norm, loss)."""
    rows = []
    for row in _rows(_objects(path.read_text(encoding="utf-8", errors="replace"))):
        if row.get("loss") is None and row.get("grad_norm") is None:
            continue
        step = to_number(row.get("step", row.get("current_steps", row.get("global_step"))))
        step = len(rows) if step is None else int(step)
        rows.append((step, to_number(row.get("grad_norm")), to_number(row.get("loss"))))
    return rows


def read_folder(folder: Path) -> dict[str, tuple[str, list[tuple[int, float | None, float | None]]]]:
    """name -> (verdict of LABELS.csv, rows) of every labelled file with at least 10 rows that have a grad_norm."""
    logs = {}
    with (folder / "LABELS.csv").open(encoding="utf-8", newline="") as table:
        for entry in csv.DictReader(table):
            rows = [row for row in read_log(folder / entry["file"]) if row[1] is not None]
            if len(rows) >= 10:
                logs[entry["file"]] = (entry["verdict"], rows)
    return logs
