"""The learning rate times a factor, from the next update on and for all that the schedule still brings.

A schedule of torch is a rule over base rates: `LambdaLR` and most others multiply `base_lrs`, some add a floor
(`eta_min`, `min_lrs`) or a ceiling (`max_lrs`), and `ReduceLROnPlateau`, `GreedyLR` and the recursive forms go on from
the rate in the optimizer's group. With all of these times the factor, each later rate is the planned one times the
factor. All of them are in `scheduler.pt` and `optimizer.pt`, so a resume from a later checkpoint goes on scaled.
"""

from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR

#: what holds rates in a scheduler, and in a group of an optimizer
_LISTS = ("base_lrs", "max_lrs", "min_lrs", "_init_lrs", "_last_lr")
_NUMBERS = ("eta_min", "default_min_lr")


class CannotScale(Exception):
    """Why the schedule of this run cannot be scaled, in words."""


@dataclass(frozen=True)
class LrChange:
    """The rates of the parameter groups for the next update, before and after."""

    before: list[float]
    after: list[float]


def scale_schedule(trainer, factor: float) -> LrChange:
    """Multiply the running schedule.

    Raises:
        CannotScale: the rates are out of reach; nothing is changed then.
    """
    optimizer, schedulers = trainer.optimizer, _all_schedulers(_unwrapped(trainer.lr_scheduler, "scheduler"))
    if getattr(_unwrapped(optimizer, "optimizer"), "optimizer_dict", None) is not None:
        raise CannotScale("a layer-wise optimizer keeps one schedule for each weight, out of reach")
    groups = _groups(optimizer, schedulers)
    if any(not isinstance(group.get("lr"), (int, float, torch.Tensor)) for group in groups):
        raise CannotScale("the optimizer sets its own rate (lr is null)")
    before = [float(group["lr"]) for group in groups]
    for group in groups:
        names = ["lr", "initial_lr"]
        if any(isinstance(scheduler, (OneCycleLR, CyclicLR)) for scheduler in schedulers):
            names += ["max_lr", "min_lr"]
        for name in names:
            if isinstance(group.get(name), torch.Tensor):
                group[name].mul_(factor)  # the optimizer's kernels hold this very tensor
            elif isinstance(group.get(name), (int, float)):
                group[name] *= factor
    for scheduler in schedulers:
        for name in _LISTS:
            if isinstance(vars(scheduler).get(name), (list, tuple)):
                setattr(scheduler, name, [rate * factor for rate in vars(scheduler)[name]])
        for name in _NUMBERS:
            if isinstance(vars(scheduler).get(name), (int, float)):
                setattr(scheduler, name, vars(scheduler)[name] * factor)
    return LrChange(before, [float(group["lr"]) for group in groups])


def schedule_is_fresh(trainer) -> bool:
    """Has the scheduler made no step yet? Where training resumes: its state was not in the checkpoint."""
    return getattr(_unwrapped(trainer.lr_scheduler, "scheduler"), "last_epoch", 1) == 0


def _unwrapped(thing, name: str):
    """What accelerate has wrapped: `AcceleratedScheduler.scheduler`, `AcceleratedOptimizer.optimizer`."""
    while type(thing).__module__.startswith("accelerate.") and hasattr(thing, name):
        thing = getattr(thing, name)
    return thing


def _all_schedulers(scheduler) -> list:
    """The scheduler, and those that it leads (`SequentialLR`, `ChainedScheduler`).

    Raises:
        CannotScale: it is none that we know the inside of.
    """
    known = isinstance(scheduler, LRScheduler) or type(scheduler).__name__ == "GreedyLR"
    if not known:
        name = "no scheduler" if scheduler is None else f"the scheduler {type(scheduler).__name__}"
        raise CannotScale(f"{name}: only schedules of torch and transformers can be scaled")
    return [scheduler, *(one for part in getattr(scheduler, "_schedulers", ()) for one in _all_schedulers(part))]


def _groups(optimizer, schedulers: list) -> list[dict]:
    """The optimizer's groups; those of the schedulers' own optimizer as well where it is another one."""
    groups = list(optimizer.param_groups) if optimizer is not None else []
    for scheduler in schedulers:
        for group in getattr(scheduler.optimizer, "param_groups", []):
            if not any(group is other for other in groups):
                groups.append(group)
    return groups
