"""`checkpoints.jsonl`: what became of each checkpoint that was saved."""

import os
from pathlib import Path

from .schema import CHECKPOINTS, FOLDER


def read_checkpoints(path: str | os.PathLike) -> list[dict]:
    """The checkpoints of a run, see `merge_checkpoints`; [] where none was recorded.

    Args:
        path: the run's output folder, or its `obs/` folder.
    """
    from .reader import read_rows

    inside = Path(path) / FOLDER / CHECKPOINTS
    return merge_checkpoints(read_rows(inside if inside.is_file() else Path(path) / CHECKPOINTS)[0])


def merge_checkpoints(rows: list[dict]) -> list[dict]:
    """One mapping for each checkpoint, in the order in which they were saved last.

    A save begins a checkpoint anew (a resumed run may come to the same step again); the rows that follow about the same
    step (read back, deleted) are joined to it. `time` stays that of the save.
    """
    found: dict[int, dict] = {}
    for row in rows:
        step = row.get("step")
        if type(step) is not int:
            continue  # a row of somebody else's making
        if "save_s" in row:
            found.pop(step, None)
        held = found.get(step, {})
        found[step] = {**held, **row, "time": held.get("time", row.get("time"))}
    return list(found.values())
