"""Holds a training still after one step, so that the kill comes after the checkpoint and not at random."""

import os
import time
from pathlib import Path

import psutil
from transformers import TrainerCallback


class Hold(TrainerCallback):
    """Waits after `step`, on every rank, for the SIGKILL of the process that started the training.

    Args:
        step: the optimizer step; another one must follow it.
        told: a file that is made when the training stands still.
        parent: the process to wait for; without it nobody would come, and the training ends by itself.
    """

    def __init__(self, step: int, told: str, parent: int):
        self.step, self.told, self.parent = step, Path(told), parent

    def on_step_begin(self, args, state, control, **kwargs):  # by now the step before is on record
        if state.global_step < self.step:
            return
        if state.is_world_process_zero:
            self.told.touch()
        while psutil.pid_exists(self.parent):
            time.sleep(0.05)
        os._exit(1)
