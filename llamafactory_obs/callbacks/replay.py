"""The recorded steps before a resume, for the detectors to see again: their state is what they have seen."""

import os
from pathlib import Path

import torch.distributed as dist

from ..record.reader import merge_steps, read_rows
from ..record.schema import FOLDER, STEPS
from .exchange import Ranks

#: more than any detector's window
ROWS = 512
_TAIL_BYTES = 8 << 20


def continues_here(trainer) -> bool:
    """Does this training go on from a checkpoint of its own output folder? (Its record is then continued.)"""
    checkpoint = trainer.args.resume_from_checkpoint
    if trainer.state.global_step == 0:
        return False
    if not isinstance(checkpoint, (str, os.PathLike)):
        return True
    return Path(checkpoint).resolve().parent == Path(trainer.args.output_dir).resolve()


def previous_rows(output_dir: str, step: int, is_main: bool) -> list[dict]:
    """The last recorded rows up to `step`, the same on every rank (rank 0 reads, the others are told)."""
    rows: list[dict] = []
    if step > 0 and is_main:
        try:
            found, _ = read_rows(Path(output_dir) / FOLDER / STEPS, tail_bytes=_TAIL_BYTES)
            rows = [row for row in merge_steps(found) if row["step"] <= step][-ROWS:]
        except Exception:  # a record that cannot be read is no reason not to train; an event says that it is missing
            rows = []
    if step > 0 and Ranks.needed():
        box = [rows]
        dist.broadcast_object_list(box, src=0)
        rows = box[0]
    return rows
