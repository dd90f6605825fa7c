"""A fault that no drill makes, as a callback that a YAML names by file path."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from llamafactory_obs.callbacks.base import ObsCallback


@dataclass(eq=False)
class ShiftLabelsUnseen(ObsCallback):
    """In one step every label stands one position too late, and callbacks that come before this one do not see it."""

    yaml_name: ClassVar[str] = "own"

    at: int = 100
    """The optimizer step, counted from 1."""

    def batch(self, inputs) -> None:
        if self.run.trainer.state.global_step == self.at - 1:
            labels = inputs["labels"]
            shifted = torch.full_like(labels, -100)
            shifted[:, 1:] = labels[:, :-1]
            shifted[inputs["attention_mask"] == 0] = -100
            labels.copy_(shifted)
