"""Something that writes to the disk in every step and waits for it."""

import os
import time
from pathlib import Path
from statistics import median

from transformers import TrainerCallback

from ..planted import Planted

_BLOCK, _LARGEST = 16 << 20, 512 << 20


class WriteEveryStep(TrainerCallback):
    """From step `at` on each step writes a file into the output folder and waits until the disk has it.

    It writes for 1.5 times a usual step, so that the incident is one on any disk; the file never is larger than
    512 MiB, it is written over and over.

    Args:
        at: the first step with a file, counted from 1.
        seconds: least time a step.
        told: a file for what was done; None for none.
    """

    def __init__(self, at: int, seconds: float = 0.25, told: str | None = None):
        self.at, self.seconds, self.planted = at, seconds, Planted(told)
        self._took: list[float] = []
        self._begun = 0.0

    def on_step_begin(self, args, state, control, **kwargs):
        self._begun = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step < self.at:
            self._took.append(time.monotonic() - self._begun)
        elif state.is_local_process_zero:
            seconds = max(self.seconds, 1.5 * median(self._took[-32:])) if self._took else self.seconds
            written = _write(Path(args.output_dir) / "dump.bin", seconds)
            if not self.planted.was_told:
                self.planted.tell(step=self.at, mib=written >> 20, seconds=seconds)


def _write(file: Path, seconds: float) -> int:
    """Bytes that were written."""
    block, begin, written = os.urandom(_BLOCK), time.monotonic(), 0
    with file.open("wb") as out:
        while time.monotonic() - begin < seconds:
            if out.tell() >= _LARGEST:
                out.seek(0)
            written += out.write(block)
            out.flush()
            os.fsync(out.fileno())
    return written
