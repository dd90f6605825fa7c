"""Reads a run once: its columns for curves, and what the curves leave out: each start's own rows and clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

from ..errors import ConfigError
from ..logs.curves import Curves
from ..logs.folder import checkpoints
from ..logs.names import STAMP, STEP
from ..logs.read import read
from ..logs.record import curves_of, read_steps
from ..logs.table import Table
from ..record.reader import has_record
from ..record.schema import EVENTS, FOLDER, LAYERS, PROBES, RUN, STEPS

_OF_RECORD = (STEPS, EVENTS, RUN, LAYERS, PROBES)
_STEP_S, _TOKENS = "time/step_s", "data/tokens"
_HIGHEST = (
    "system/peak_allocated_gib",
    "system/peak_reserved_gib",
    "system/device_used_gib",
    "system/rss_gib",
    "data/max_length",
)


@dataclass
class Stretch:
    """The rows of one start of training, as they were written.

    Attributes:
        rows: their number. first_step, last_step: lowest and highest.
        times: Unix seconds of each row, in the file's order.
        step_s: measured seconds of the rows that have them. timed_rows: rows up to the last one of these.
        tokens: real tokens of all its rows.
        highest: the highest value of some columns.
    """

    rows: int = 0
    first_step: int | None = None
    last_step: int | None = None
    times: Sequence[float] = ()
    step_s: list[float] = field(default_factory=list)
    timed_rows: int = 0
    tokens: float | None = None
    highest: dict[str, float] = field(default_factory=dict)


@dataclass
class Loaded:
    """A run as it was read.

    Attributes:
        path: as named. output_dir: of the run. record: its `obs/` folder, None for a plain log.
        curves: as `logs.read` gives them.
        stretches: segment -> its rows; {} for a plain log.
    """

    path: Path
    output_dir: Path
    record: Path | None
    curves: Curves
    stretches: dict[int, Stretch] = field(default_factory=dict)


def load(path: str | Path) -> Loaded:
    """Read a run's output folder, its `obs/` folder, one of the record's files, or any log that `diagnose` reads.

    Raises:
        ConfigError: there is nothing to read, in one line.
    """
    path = Path(path)
    try:
        record = _record_of(path)
    except OSError as error:  # no name of a file, no right to look
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    if record is None or not (record / STEPS).is_file():
        output_dir = record.parent if record is not None else path if path.is_dir() else path.parent
        return Loaded(path, output_dir, record, read(path))
    table, torn = read_steps(record / STEPS)
    stretches = _stretches(table)
    curves = curves_of(record, table, torn)
    curves.path, curves.checkpoints = path, checkpoints(record.parent)
    return Loaded(path, record.parent, record, curves, stretches)


def _record_of(path: Path) -> Path | None:
    if path.name in _OF_RECORD and has_record(path.parent):
        return path.parent
    return next((place for place in (path / FOLDER, path) if has_record(place)), None)


def _stretches(table: Table) -> dict[int, Stretch]:
    segments, steps = table.columns.get("segment"), table.columns.get(STEP)
    if steps is None:
        return {}
    numbers = [int(value) if math.isfinite(value) else 0 for value in segments.values] if segments else [0] * table.rows
    found: dict[int, Stretch] = {}
    for segment in sorted(set(numbers)):
        mask = bytes(number == segment for number in numbers)
        found[segment] = _stretch(table, mask)
    return found


def _stretch(table: Table, mask: bytes) -> Stretch:
    def present(name: str) -> list[float]:
        column = table.columns.get(name)
        if column is None:
            return []
        there = compress(column.present, mask)
        return [value for value in compress(compress(column.values, mask), there) if math.isfinite(value)]

    steps, tokens = present(STEP), present(_TOKENS)
    timed = table.columns.get(_STEP_S)
    place = -1 if timed is None else bytes(compress(timed.present, mask)).rfind(1)
    return Stretch(
        rows=sum(mask),
        first_step=int(min(steps)) if steps else None,
        last_step=int(max(steps)) if steps else None,
        times=[value for value in present(STAMP) if 0 < value < 1e11],
        step_s=present(_STEP_S),
        timed_rows=place + 1,
        tokens=sum(tokens) if tokens else None,
        highest={name: max(values) for name in _HIGHEST if (values := present(name))},
    )
