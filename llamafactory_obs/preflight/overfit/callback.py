"""The callback of the single-batch test, named in its derived config by dotted path."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...callbacks.base import ObsCallback
from .rule import Rule


@dataclass(eq=False)
class StopWhenLearned(ObsCallback):
    """Ends the training through the Trainer's control once the batch is learned, or the loss is not finite any more.

    It is no observer: in this copy of the run it takes out what would blur the loss of a batch (dropout) and what would
    only be thrown away (the last save).
    """

    yaml_name: ClassVar[str] = "stop_when_learned"

    def begin(self) -> None:
        self._first: float | None = None
        self._bad = 0
        trainer = self.run.trainer
        trainer.save_model = lambda *args, **kwargs: None
        for module in trainer.model.modules():
            if isinstance(module, torch.nn.modules.dropout._DropoutNd):
                module.p = 0.0
            for name in ("attention_dropout", "dropout"):  # a number that is handed to an attention function
                if isinstance(vars(module).get(name), float):
                    setattr(module, name, 0.0)

    def row(self, row) -> None:
        loss = row.values.get("train/loss")
        if loss is None:
            return
        self._first = loss if self._first is None else self._first
        self._bad = 0 if math.isfinite(loss) else self._bad + 1
        if self._bad >= 3 or Rule.learned(self._first, loss) or Rule.known(self._first):
            self.run.request("stop", row.step)
