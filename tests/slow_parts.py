"""A callback that plants known costs in a run, for a config's `callbacks:` by path."""

import time

from transformers import TrainerCallback

from llamafactory_obs.callbacks.base import find_trainer


class SlowParts(TrainerCallback):
    """Sleeps: `row` seconds for each row that is collated, and in each log, evaluation batch, and save."""

    def __init__(self, row: float = 0.0, log: float = 0.0, eval_batch: float = 0.0, save: float = 0.0):
        self.row, self.log, self.eval_batch, self.save = row, log, eval_batch, save

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        trainer = find_trainer(self)
        collate, save = trainer.data_collator, trainer.save_model

        def slow_collate(rows):
            time.sleep(self.row * len(rows))
            return collate(rows)

        def slow_save(*words, **named):
            time.sleep(self.save)
            return save(*words, **named)

        trainer.data_collator, trainer.save_model = slow_collate, slow_save
        model.register_forward_pre_hook(lambda module, inputs: None if module.training else time.sleep(self.eval_batch))

    def on_log(self, args, state, control, **kwargs):
        time.sleep(self.log)
