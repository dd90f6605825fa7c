"""Does the disk hold the checkpoints that are still to come?"""

import os
from collections.abc import Iterator

from transformers.trainer_utils import get_last_checkpoint

from ..detect import Finding, LowRoomDetector

_GIB = 1 << 30
#: the next checkpoint may be a little larger than the last one
_SLACK = 1.1
_LIMITS = "The next checkpoint is taken to be as large as the last one. Quotas are not seen, and others write too."


class DiskRoom:
    """Compares the free disk with the size of the last checkpoint, on a resume with the one that it goes on from.

    Args:
        trainer: the Trainer.
        margin_gib: what should stay free in any case.
        bounded: old checkpoints make room for new ones (`checkpoint_guard: {top_k: ...}`).
    """

    def __init__(self, trainer, margin_gib: float, bounded: bool = False):
        self._args, self._state, self._margin = trainer.args, trainer.state, margin_gib
        self._bounded = bounded
        free = "free disk where output_dir is"
        clean = "Delete old checkpoints, or set save_total_limit."
        self._next = LowRoomDetector(
            "checkpoint_will_not_fit",
            free,
            f"The next checkpoint does not fit, and a save that fails ends the training. {clean}",
            level="error",
            limits=_LIMITS,
        )
        self._all = LowRoomDetector("disk_too_small", free, f"Not all checkpoints to come fit. {clean}", limits=_LIMITS)
        self._little = LowRoomDetector("disk_nearly_full", free, clean, limits=_LIMITS)
        self._size = self._size_before()

    def _size_before(self) -> float | None:
        """Size of the checkpoint that this training goes on from; None at a fresh start."""
        args = self._args
        if self._state.global_step == 0:
            return None
        given = args.resume_from_checkpoint
        folder = given if isinstance(given, str) and os.path.isdir(given) else get_last_checkpoint(args.output_dir)
        return None if folder is None else folder_gib(folder)

    def saved(self, folder: str, last: bool) -> None:
        """A checkpoint has been saved to `folder`; `last`: no other follows."""
        self._size = None if last or not os.path.isdir(folder) else folder_gib(folder)

    def judge(self, step: int, free_gib: float | None) -> Iterator[Finding]:
        """What is to be said about the free disk after this step."""
        next_gib = (self._size or 0.0) * _SLACK
        several = max(1, int((free_gib or 0.0) / next_gib) - 1) if next_gib else 1
        unbounded = self._args.save_total_limit is None and not self._bounded
        suggest = {"save_total_limit": several} if unbounded and next_gib else {}
        findings = (
            self._next.update(step, free_gib, next_gib, suggest),
            self._all.update(step, free_gib, next_gib * self._to_come(step), suggest),
            self._little.update(step, free_gib, self._margin, suggest),
        )
        yield from (finding for finding in findings if finding is not None)

    def _to_come(self, step: int) -> int:
        """Checkpoints still to be added; 0 where old ones make room for them, or where it is unknown."""
        args, state = self._args, self._state
        if args.save_strategy != "steps" or args.save_total_limit is not None or self._bounded or not state.save_steps:
            return 0
        return max(0, state.max_steps - step) // int(state.save_steps)


def folder_gib(folder: str) -> float:
    """Size of all files below a folder, in GiB."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue  # rotated away meanwhile
    return total / _GIB
