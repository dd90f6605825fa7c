"""The callback that drives the measuring run, named in its derived config by dotted path.

It is no observer: it decides which batches each step trains on, and when the Trainer logs, evaluates and saves.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...callbacks.base import ObsCallback, find_trainer
from .loader import Loader, Ready, cells_of
from .plan import Plan, Planned, length_of
from .preparation import Preparation

#: what the callback leaves in the run's output folder
RESULT = "speed.json"
#: one pass over the data that never ends, in micro-batches: the Trainer's own end of an epoch would cut a step short
_ENDLESS = 10**7


@dataclass(eq=False)
class MeasureSpeed(ObsCallback):
    """Runs a `Plan`: each step's batches come from a loader of its choice, or are ready."""

    yaml_name: ClassVar[str] = "measure_speed"

    steps: int | None = None
    """Measured steps of a block; None chooses by how long a step takes."""
    rows: int = 2000
    """Rows of a split that are tokenised at most."""
    log: bool = True
    """Measure logging."""
    evaluate: bool = True
    """Measure an evaluation, where there is something to evaluate."""
    save: bool = True
    """Measure a save."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.preparation = Preparation(self.rows)
        self.preparation.install()
        self._built = time.perf_counter()

    def on_init_end(self, args, state, control, **kwargs):
        trainer = find_trainer(self)
        original = trainer.set_initial_training_values

        def endless(*words, **named):
            values = list(original(*words, **named))
            values[0], values[1], values[5] = 1, _ENDLESS, _ENDLESS * args.gradient_accumulation_steps
            return tuple(values)

        trainer.set_initial_training_values = endless

    def begin(self) -> None:
        trainer = self.run.trainer
        self._started_s = time.perf_counter() - self._built
        self._steps: list[dict] = []
        self._plan = Plan(trainer, lambda: dict(self.run.costs), self.steps, self.log, self.evaluate, self.save)
        self._planned = self._plan.steps()
        self._now: Planned | None = None
        self._next = next(self._planned)
        trainer.get_batch_samples = self._batches  # a start anew (auto_find_batch_size) finds ours there

    def _batches(self, iterator, count, device):
        self._now, self._next = self._next, None
        now, source = self._now, self._now.source
        starts = len(source.starts) if isinstance(source, Loader) else 0
        if isinstance(source, Ready):
            batches, normaliser = source.hand_out()
        else:
            trainer = self.run.trainer
            batches, normaliser = type(trainer).get_batch_samples(trainer, source, count, device)
            now.loaded = Ready(batches, normaliser)
        began = isinstance(source, Loader) and len(source.starts) > starts
        self._steps.append(
            {
                "step": self.run.step,
                "block": now.block,
                "index": now.index,
                "began": began,
                "cells": cells_of(batches),
                "then": now.then,
            }
        )
        return batches, normaliser

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log = self._now.then == "log"
        control.should_evaluate = self._now.then == "evaluate"
        control.should_save = self._now.then == "save"
        self._next = next(self._planned, None)
        control.should_training_stop = self._next is None

    def end(self) -> None:
        trainer = self.run.trainer
        trainer.save_model = lambda *args, **kwargs: None  # LlamaFactory's after training: thrown away with the rest
        preparation = {"read_s": self.preparation.read_s, "splits": self.preparation.splits}
        found = {
            "steps": self._steps,
            "started_s": self._started_s,
            "preparation": preparation,
            "train_sequences": length_of(trainer.train_dataset),
            **self._plan.found,
        }
        path = Path(trainer.args.output_dir) / RESULT
        path.write_text(json.dumps(found), encoding="utf-8")
