"""The one place where an order becomes the Trainer's control: each part of it with what came of it."""

from dataclasses import dataclass
from typing import Literal

from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..control.order import Order
from .lr_scale import CannotScale, LrChange, scale_schedule


@dataclass
class Result:
    """What came of one part of an order.

    Attributes:
        what: its name, as in `Order`.
        status: `done`; `asked`: the Trainer does it now, right after this step; `unchanged`: it was so already;
            `refused`: this run cannot do it.
        text: what happened, or why not.
        change: of `lr_scale`.
    """

    what: str
    status: Literal["done", "asked", "unchanged", "refused"]
    text: str
    change: LrChange | None = None

    def to_dict(self) -> dict:
        """For the answer and the record."""
        return {"what": self.what, "status": self.status, "text": self.text}


def carry_out(order: Order, trainer, control, planned_steps: int, own_loop: bool) -> list[Result]:
    """Do it, at the end of a step or before the first one; the same on every rank.

    Args:
        control: the Trainer's `TrainerControl`.
        planned_steps: the number of steps that the run was started with.
        own_loop: the trainer does not run transformers' loop, and of its control it reads only the stop.
    """
    results = []
    for name, value in order.given().items():
        if own_loop and name != "stop":
            results.append(Result(name, "refused", "this trainer's loop is its own (ppo): it can only be stopped"))
        elif name in ("eval", "save", "stop"):
            results.append(_once(name, trainer, control))
        elif name == "lr_scale":
            results.append(_scaled(trainer, value))
        elif name == "max_steps":
            results.append(_ends_at(trainer, value, planned_steps))
        else:
            results.append(_interval(trainer, name, value))
    return results


def _once(name: str, trainer, control) -> Result:
    step = trainer.state.global_step
    if name == "eval":
        if trainer.eval_dataset is None:
            return Result(name, "refused", "this run has no eval data set (eval_dataset, or val_size)")
        control.should_evaluate = True
        return Result(name, "asked", "an evaluation is made now")
    if name == "save":
        control.should_save = True
        return Result(name, "asked", f"checkpoint-{step} is saved now")
    control.should_training_stop = True
    return Result(name, "asked", f"training ends after step {step}")


def _scaled(trainer, factor: float) -> Result:
    if factor == 1:
        return Result("lr_scale", "unchanged", "a factor of 1 changes nothing")
    try:
        change = scale_schedule(trainer, factor)
    except CannotScale as error:
        return Result("lr_scale", "refused", str(error))
    rates = f"{change.before[0]:.4g} -> {change.after[0]:.4g}"
    more = f" (first of {len(change.before)} parameter groups)" if len(change.before) > 1 else ""
    text = f"learning rate {rates}{more} from step {trainer.state.global_step + 1} on"
    return Result("lr_scale", "done", f"{text}, and the rest of the schedule with it", change)


def _interval(trainer, name: str, steps: int) -> Result:
    """`DefaultFlowCallback` reads the interval from the state, which a checkpoint keeps, and the strategy from args."""
    kind = name.removesuffix("_steps")
    strategy = getattr(trainer.args, f"{kind}_strategy")
    wanted = SaveStrategy.STEPS if kind == "save" else IntervalStrategy.STEPS
    if strategy != wanted:
        word = getattr(strategy, "value", strategy)
        return Result(name, "refused", f"{kind}_strategy is {word}, so the run does not look at {name}")
    before = getattr(trainer.state, name)
    if before == steps:
        return Result(name, "unchanged", f"{name} is {steps} already")
    setattr(trainer.state, name, steps)
    return Result(name, "done", f"{name} {before} -> {steps}")


def _ends_at(trainer, last: int, planned: int) -> Result:
    state = trainer.state
    if last > planned:
        text = f"the run was started for {planned} steps; for more, resume with a larger max_steps or num_train_epochs"
        return Result("max_steps", "refused", text)
    if last <= state.global_step:
        return Result("max_steps", "refused", f"step {state.global_step} has ended already; use --stop")
    if last == state.max_steps:
        return Result("max_steps", "unchanged", f"max_steps is {last} already")
    before, state.max_steps = state.max_steps, last
    text = f"max_steps {before} -> {last}; the learning rate's schedule is not changed by it"
    return Result("max_steps", "done", text)
