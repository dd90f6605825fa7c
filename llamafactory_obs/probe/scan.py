"""What there is to probe: folders on disk, and what the run's record says was saved and whether training is over."""

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ..checkpoint.files import Incomplete
from ..checkpoint.trainer_state import read_state
from ..record.reader import read_rows
from ..record.schema import EVENTS, FOLDER

FINAL = "final"
"""The name under which the model in the output folder itself is probed."""

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_BEGINS, _ENDS = ("start", "resume", "retry"), ("end", "crash", "interrupted", "oom")
#: Beside an `oom` event the recorder writes `crash` or `retry` at once; only if neither comes does it stand alone.
_OOM_ALONE_S = 5.0


@dataclass(frozen=True)
class Found:
    """A folder that may hold a model: its step (None for the final model), its name and its place."""

    step: int | None
    name: str
    folder: Path


@dataclass(frozen=True)
class Run:
    """The training as its record tells it.

    Attributes:
        known: there is a record of a training, though perhaps not of the one that is meant.
        ended: the kind of the event that ended it ("end", "crash", "interrupted", "oom"); "" while it goes on.
        ended_at: when that was, Unix seconds.
        began: when the newest segment began, Unix seconds; 0 where unknown.
        saved: steps of the checkpoints saved -> when the segment that saved them began.
    """

    known: bool = False
    ended: str = ""
    ended_at: float = 0.0
    began: float = 0.0
    saved: dict[int, float] = field(default_factory=dict)


def step_of(name: str) -> int | None:
    """The N of `checkpoint-N`; None for every other name (`tmp-checkpoint-10`, `checkpoint-final`)."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def find_checkpoints(output_dir: Path) -> list[Found]:
    """The `checkpoint-N` folders, by step. Empty where the output folder does not exist (yet).

    Raises:
        OSError: the folder cannot be listed, which says nothing about what is in it.
    """
    found = []
    try:
        with os.scandir(output_dir) as entries:
            for entry in entries:
                step = step_of(entry.name)
                if step is not None and os.path.isdir(entry.path):  # no error for a link that leads to itself
                    found.append(Found(step, entry.name, output_dir / entry.name))
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda item: (item.step, item.name))


def find_final(output_dir: Path) -> Found:
    """Where the final model would be: the output folder itself. Whether one is there is for its proof to say."""
    return Found(None, FINAL, output_dir)


class Record:
    """Reads the events of a run's record again whenever they have changed.

    Args:
        output_dir: the run's output folder; there need not be a record, nor the folder.
        since_segment: segments before this one are of trainings that do not count.
    """

    def __init__(self, output_dir: Path, since_segment: int = 0):
        self._file, self._since = output_dir / FOLDER / EVENTS, since_segment
        self._seen: tuple | None = None
        self._events: list[dict] = []

    def read(self) -> Run:
        """What the record says now; an empty `Run` where there is none."""
        try:
            entry = os.stat(self._file)
            seen = (entry.st_ino, entry.st_size, entry.st_mtime_ns)
        except OSError:
            return Run()
        if seen != self._seen:
            rows, _ = read_rows(self._file)
            self._seen = seen
            self._events = rows
        return run_of(self._events, self._since)


def run_of(events: list[dict], since_segment: int = 0) -> Run:
    """The state of a training from the events of its record, in the order written."""
    known = any(row.get("kind") in ("start", "resume") for row in events)
    events = [row for row in events if row.get("segment", 0) >= since_segment]
    newest = max((row.get("segment", 0) for row in events), default=0)
    began: dict[int, float] = {}
    saved: dict[int, float] = {}
    last: dict = {}
    for row in events:
        kind, segment = row.get("kind"), row.get("segment", 0)
        if kind in ("start", "resume"):
            began.setdefault(segment, row.get("time", 0.0))
        elif kind == "checkpoint" and "step" in row:
            saved[row["step"]] = began.get(segment, 0.0)
        if segment == newest and kind in _BEGINS + _ENDS:
            last = row
    ended = last.get("kind", "") if last.get("kind") in _ENDS else ""
    if ended == "oom" and time.time() - last.get("time", 0.0) < _OOM_ALONE_S:
        ended = ""
    ended_at = last.get("time", 0.0) if ended else 0.0
    return Run(known=known, ended=ended, ended_at=ended_at, began=began.get(newest, 0.0), saved=saved)


def due_steps(newest: Path, seen: Iterable[int]) -> tuple[list[int], int]:
    """The steps at which checkpoints were due before the newest one, from its `save_steps`; for runs without a record.

    Args:
        newest: the newest checkpoint.
        seen: all steps at which a checkpoint is or was known to be.

    Returns:
        The steps below the newest one's, and `save_steps`. No steps where one that was seen is no multiple of it (but
        for the last of the training): then it is not what decided (`save_strategy: epoch`, a checkpoint by hand).
    """
    try:
        state = read_state(newest)
    except Incomplete:
        return [], 0
    every, step, last = (state.get(name) for name in ("save_steps", "global_step", "max_steps"))
    if any(type(number) is not int or number < 1 for number in (every, step, last)):
        return [], 0
    if any(other % every for other in {*seen, step} if other < last):
        return [], 0
    return list(range(every, step, every)), every


def process(pid: int | None) -> psutil.Process | None:
    """The process as it is now; a later one with the same pid is another (psutil compares the creation times)."""
    try:
        return None if pid is None else psutil.Process(pid)
    except psutil.Error:
        return None


def lives(process: psutil.Process | None) -> bool:
    """Does it still run? A zombie does not: its parent has only not asked yet."""
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
