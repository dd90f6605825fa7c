"""What was recorded before a resume: the detectors see it again, and what goes on is compared with it."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch.distributed as dist

from ..logs.resumed import AFTER, plain_row
from ..record.reader import merge_steps, read_rows
from ..record.schema import FOLDER, STEPS
from .exchange import Ranks
from .pipeline import Row

#: more than any detector's window
ROWS = 512
_TAIL_BYTES = 8 << 20


@dataclass(frozen=True)
class Previous:
    """The record of the starts before this one.

    Attributes:
        rows: the last recorded rows up to the checkpoint's step, the same on every rank.
        replaced: those of the steps that are about to be made once more (see `logs.resumed`); on the first rank alone.
    """

    rows: list[dict] = field(default_factory=list)
    replaced: list[dict] = field(default_factory=list)


def continues_here(trainer) -> bool:
    """Does this training go on from a checkpoint of its own output folder? (Its record is then continued.)"""
    checkpoint = trainer.args.resume_from_checkpoint
    if trainer.state.global_step == 0:
        return False
    if not isinstance(checkpoint, (str, os.PathLike)):
        return True
    return Path(checkpoint).resolve().parent == Path(trainer.args.output_dir).resolve()


def read_previous(output_dir: str, step: int, is_main: bool) -> Previous:
    """What was recorded up to `step` and beyond it (rank 0 reads; of the rows up to `step` the others are told)."""
    rows: list[dict] = []
    replaced: list[dict] = []
    if step > 0 and is_main:
        try:
            found = merge_steps(read_rows(Path(output_dir) / FOLDER / STEPS, tail_bytes=_TAIL_BYTES)[0])
            rows = [row for row in found if row["step"] <= step][-ROWS:]
            later = [row for row in found if row["step"] > step and "train/loss" in row]
            replaced = [plain_row(row["step"], row) for row in later[:AFTER]]
        except Exception:  # a record that cannot be read is no reason not to train; an event says that it is missing
            rows = []
    if step > 0 and Ranks.needed():
        box = [rows]
        dist.broadcast_object_list(box, src=0)
        rows = box[0]
    return Previous(rows, replaced)


def restore(run, step: int) -> None:
    """Bring the detectors to where they were at the checkpoint, by showing them the rows again."""
    run.journal.muted = True
    for values in run.previous.rows:
        run.each("row", Row(values["step"], values))
    run.journal.muted = False
    if step > 0 and not run.previous.rows:
        text = f"no recorded steps up to {step} in this folder: the detectors' windows fill anew"
        run.event("restore", "recorder", "detectors start empty", text, level="warn")
