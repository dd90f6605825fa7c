"""What a drill trains: four trainings of one config, and what each of them changes."""

import os
from dataclasses import dataclass
from pathlib import Path

from ...preflight.rehearsal.derive import Derived
from ...preflight.run_config import RunConfig
from .. import alone
from .words import say

#: the trainings in their order
UNBROKEN, BROKEN, RESUMED, AGAIN = "unbroken", "broken", "resumed", "again"
#: steps after the checkpoint that are made and lost, at most
_LOST_STEPS = 5

#: both trainings end with a whole checkpoint
_SAVES = {"save_strategy": "steps", "save_only_model": False}


@dataclass(frozen=True)
class Plan:
    """One drill.

    Attributes:
        config: of the real run.
        folder: the drill's own, absolute.
        steps, extra: before and after the break.
        take_away: see `command.PARTS`; None for nothing.
        ranks: training processes.
        keep: the trainings' folders stay, whole.
    """

    config: RunConfig
    folder: Path
    steps: int
    extra: int
    take_away: str | None = None
    ranks: int = 1
    keep: bool = False

    @property
    def total(self) -> int:
        """Steps of a whole training. The schedule of every training is for so many, or learning rates would differ."""
        return self.steps + self.extra

    @property
    def held(self) -> int:
        """The step after which the training is killed."""
        return self.steps + min(_LOST_STEPS, self.extra - 1)

    @property
    def after(self) -> range:
        """The steps after the resume."""
        return range(self.steps + 1, self.total + 1)

    @property
    def told(self) -> Path:
        """Made by the training that stands still."""
        return self.folder / "held"

    def output_dir(self, name: str) -> Path:
        """Of one training; the resumed one goes on in that of the broken one."""
        return self.folder / (BROKEN if name == RESUMED else name)

    def log(self, name: str) -> Path:
        """What one training printed."""
        return self.folder / f"{name}.log"

    def checkpoint(self, name: str, step: int) -> Path:
        """A checkpoint of one training."""
        return self.output_dir(name) / f"checkpoint-{step}"


def derive(plan: Plan, name: str) -> Derived:
    """The config of one training."""
    given = plan.config.given
    wanted = {**_SAVES, "max_steps": plan.total, "save_steps": plan.steps}
    if given.get("load_best_model_at_end"):
        wanted |= {"eval_strategy": "steps", "eval_steps": plan.steps}
    else:
        wanted |= alone.NO_EVALUATION
    if name == RESUMED:
        wanted |= {"resume_from_checkpoint": str(plan.checkpoint(BROKEN, plan.steps)), "overwrite_output_dir": False}
        if plan.take_away == "data_order":
            wanted |= other_order(given)
    callbacks = [*alone.own_callbacks(plan.config, but=("samples",)), "samples"]
    if name == BROKEN:
        hold = {"step": plan.held, "told": str(plan.told), "parent": os.getpid()}
        callbacks.append({"name": "llamafactory_obs.drill.resume.hold.Hold", "args": hold})
    return alone.derive(plan.config, plan.output_dir(name), wanted, callbacks, _settings(plan.config))


def other_order(given: dict) -> dict:
    """Keys that make a resume meet other rows than the checkpoint's training would have met."""
    if given.get("disable_shuffling") or given.get("streaming"):
        return {"ignore_data_skip": True}  # no seed decides the order: begin the epoch again
    seed = given.get("data_seed")
    return {"data_seed": int(given.get("seed", 42) if seed is None else seed) + 1}


def notes(plan: Plan) -> list[str]:
    """What a person should know about the difference between these trainings and the real run."""
    given, found = plan.config.given, []
    if given.get("save_only_model"):
        found.append(say("note.save_only_model"))
    if given.get("ignore_data_skip"):
        found.append(say("note.ignore_data_skip"))
    if given.get("resume_from_checkpoint"):
        found.append(say("note.resume_from", checkpoint=given["resume_from_checkpoint"]))
    if given.get("auto_find_batch_size"):
        found.append(say("note.auto_batch"))
    found += [say("note.left_out", name=name) for name in alone.left_out(plan.config)]
    return found


def _settings(config: RunConfig) -> dict:
    """With what the run does by itself: it is part of what must repeat itself."""
    obs, automatic = alone.own_settings(config), config.settings.control
    if automatic.auto != "off":
        obs["control"] |= {
            name: getattr(automatic, name) for name in ("auto", "lr_scale", "max_times", "cooldown_steps")
        }
    return obs
