"""Faults for real runs, as callbacks that a YAML names by file path."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from transformers import TrainerCallback

from llamafactory_obs.callbacks.base import ObsCallback


@dataclass(eq=False)
class ShiftLabels(ObsCallback):
    """In one step every label stands one position too late."""

    yaml_name: ClassVar[str] = "shift_labels"

    at: int = 100
    """The optimizer step, counted from 1."""

    def batch(self, inputs) -> None:
        if self.run.trainer.state.global_step == self.at - 1:
            labels = inputs["labels"]
            shifted = torch.full_like(labels, -100)
            shifted[:, 1:] = labels[:, :-1]
            shifted[inputs["attention_mask"] == 0] = -100
            labels.copy_(shifted)


class RaiseRate(TrainerCallback):
    """After step `after` the schedule is multiplied by `factor`."""

    def __init__(self, factor: float = 20.0, after: int = 80):
        self.factor, self.after = factor, after

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs):
        if state.global_step == self.after:
            lr_scheduler.base_lrs = [rate * self.factor for rate in lr_scheduler.base_lrs]
            for group, rate in zip(lr_scheduler.optimizer.param_groups, lr_scheduler.base_lrs, strict=True):
                group["lr"] = rate


class SlowSave(TrainerCallback):
    """From step `after` on, each step writes a file and waits until the disk has it, for `seconds` on any disk."""

    def __init__(self, seconds: float = 0.25, after: int = 0):
        self.seconds, self.after = seconds, after

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step <= self.after:
            return
        block, begin = os.urandom(16 << 20), time.monotonic()
        with open(Path(args.output_dir) / "dump.bin", "wb") as file:
            while time.monotonic() - begin < self.seconds:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
