"""A learning rate that somebody changes on the way."""

from transformers import TrainerCallback

from ....callbacks.base import find_trainer
from ....callbacks.lr_scale import scale_schedule
from ..planted import Planted


class RaiseRate(TrainerCallback):
    """From step `at` on the rate is `factor` times what the schedule brings.

    Args:
        at: the step, counted from 1.
        factor: 20 is far outside of what a sound rate bears.
        told: a file for what was done; None for none.
    """

    def __init__(self, at: int, factor: float = 20.0, told: str | None = None):
        self.at, self.factor, self.planted = at, factor, Planted(told)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.at - 1:
            change = scale_schedule(find_trainer(self), self.factor)
            self.planted.tell(step=self.at, factor=self.factor, before=change.before[0], after=change.after[0])
