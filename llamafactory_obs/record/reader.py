"""Reads a record: plain columns, and a pandas DataFrame where pandas is there."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from .checkpoints import merge_checkpoints
from .schema import CHECKPOINTS, EVENTS, FOLDER, LAYERS, RUN, STEPS, decode


@dataclass
class Layers:
    """`layers.jsonl`: `names` and `modules` once, then one list of numbers per step under each measure."""

    names: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    rows: list[dict] = field(default_factory=list)

    def column(self, measure: str, name: str) -> dict[int, float]:
        """One layer's (or module type's) measure by step, e.g. `column("grad_norm", "layers.0")`."""
        names, measure = (self.names, measure) if name in self.names else (self.modules, f"module_{measure}")
        index = names.index(name)
        return {row["step"]: row[measure][index] for row in self.rows if row.get(measure) is not None}


@dataclass
class RunRecord:
    """One record as a person wants it: for each step the newest segment's numbers.

    Attributes:
        run: the identity, `run.json` (empty where missing).
        steps: column name -> list, all of equal length, ordered by step; None where a step has no such number.
        events: the events in the order written.
        layers: per-layer norms.
        checkpoints: one mapping for each checkpoint that `checkpoint_guard` has seen, see `record.checkpoints`.
        torn: lines that were no JSON (a killed writer's last words), skipped.
    """

    folder: Path
    run: dict
    steps: dict[str, list]
    events: list[dict]
    layers: Layers
    checkpoints: list[dict] = field(default_factory=list)
    torn: int = 0

    def frame(self):
        """The steps as a pandas DataFrame, indexed by step.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed; `pip install pandas`, or use the columns in `.steps`") from None
        return pandas.DataFrame(self.steps).set_index("step")


def load_record(path: str | os.PathLike) -> RunRecord:
    """Read the record of a run.

    Args:
        path: the run's output folder, or its `obs/` folder.

    Raises:
        ConfigError: there is no record.
    """
    folder = find_folder(path)
    rows, torn = read_rows(folder / STEPS)
    events, torn_events = read_rows(folder / EVENTS)
    layers, torn_layers = read_rows(folder / LAYERS)
    saves, torn_saves = read_rows(folder / CHECKPOINTS)
    return RunRecord(
        folder=folder,
        run=decode_run(folder / RUN),
        steps=_columns(merge_steps(rows)),
        events=events,
        layers=_layers(layers),
        checkpoints=merge_checkpoints(saves),
        torn=torn + torn_events + torn_layers + torn_saves,
    )


def find_folder(path: str | os.PathLike) -> Path:
    """The `obs/` folder for an output folder or for itself.

    Raises:
        ConfigError: there is none.
    """
    path = Path(path)
    for folder in (path / FOLDER, path):
        if has_record(folder):
            return folder
    raise ConfigError(f"{path}: no run record here (looked for {FOLDER}/{STEPS}); name the run's output_dir")


def has_record(folder: Path) -> bool:
    """Does this folder hold any of the record's own files?"""
    return any((folder / name).is_file() for name in (RUN, STEPS, LAYERS, EVENTS))


def read_rows(file: Path, tail_bytes: int | None = None) -> tuple[list[dict], int]:
    """All rows of one file and the number of lines that were no JSON.

    Args:
        tail_bytes: read at most this much from the end.
    """
    try:
        with open(file, "rb") as handle:
            if tail_bytes is not None and os.fstat(handle.fileno()).st_size > tail_bytes:
                handle.seek(-tail_bytes, os.SEEK_END)
                handle.readline()  # a part of a row
            lines = handle.read().split(b"\n")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return [], 0
    found = [read_row(line) for line in lines if line.strip()]
    rows = [row for row in found if row is not None]
    return rows, len(found) - len(rows)


def read_row(line: bytes) -> dict | None:
    """The row of one line; None where it is torn.

    What every reader relies on: `step` and `segment`, where they are there, are whole numbers.
    """
    try:
        row = decode(line)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    return row if all(type(row[name]) is int for name in ("step", "segment") if name in row) else None


def merge_steps(rows: list[dict]) -> list[dict]:
    """One row a step: rows of one segment are joined, of several segments the newest wins. Ordered by step."""
    merged: dict[int, dict] = {}
    for row in rows:
        step = row.get("step")
        if step is None:
            continue
        held = merged.get(step)
        if held is None or row.get("segment", 0) > held.get("segment", 0):
            merged[step] = dict(row)
        elif row.get("segment", 0) == held.get("segment", 0):
            held.update(row)
    return [merged[step] for step in sorted(merged)]


def last_segment(folder: Path) -> int:
    """The highest segment in a record, -1 where there is none."""
    segments = [-1]
    for file in (STEPS, LAYERS, EVENTS):
        rows, _ = read_rows(folder / file, tail_bytes=1 << 20)
        segments += [row["segment"] for row in rows if "segment" in row]
    return max(segments)


def _columns(rows: list[dict]) -> dict[str, list]:
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["step"]
    return {name: [row.get(name) for row in rows] for name in names}


def _layers(rows: list[dict]) -> Layers:
    """Each segment writes its own header; segments of another model than the newest are left out."""
    headers = {row.get("segment"): (row["names"], row.get("modules", [])) for row in rows if "names" in row}
    if not headers:
        return Layers()
    newest = headers[max(headers)]
    numbers = [row for row in rows if "names" not in row and headers.get(row.get("segment")) == newest]
    return Layers(*newest, rows=merge_steps(numbers))


def decode_run(file: Path) -> dict:
    """`run.json` as a mapping, empty where it is missing or broken."""
    try:
        return decode(file.read_bytes())
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}
