"""What a drill trains: four trainings of one config, and what each of them changes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...preflight.rehearsal.derive import GONE, Derived, name_of
from ...preflight.run_config import RunConfig

#: the trainings in their order
UNBROKEN, BROKEN, RESUMED, AGAIN = "unbroken", "broken", "resumed", "again"
#: steps after the checkpoint that are made and lost, at most
_LOST_STEPS = 5

#: nothing leaves the drill's folder, nothing is resumed unless the drill says so, and nothing ends it early
_ALONE = {
    "do_train": True,
    "do_eval": False,
    "do_predict": False,
    "overwrite_output_dir": True,
    "resume_from_checkpoint": GONE,
    "save_strategy": "steps",
    "save_total_limit": GONE,
    "save_only_model": False,
    "early_stopping_steps": GONE,
    "report_to": "none",
    "use_swanlab": False,
    "push_to_hub": False,
    "run_name": GONE,
    "logging_dir": GONE,
    "plot_loss": False,
    "disable_tqdm": True,
    "evaluation_strategy": GONE,
    "eval_delay": GONE,
    "eval_on_start": GONE,
}
#: no evaluation; the evaluation set stays, because it decides which rows are left to train on
_NO_EVALUATION = {
    "eval_strategy": "no",
    "eval_steps": GONE,
    "load_best_model_at_end": False,
    "metric_for_best_model": GONE,
    "greater_is_better": GONE,
}
#: what stands for "not given" where LlamaFactory's default does the same
_NEUTRAL = (GONE, False, "none", "no")
#: callbacks that start a process of their own and cannot change the training
_LEFT_OUT = ("probe",)


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
    given, changed = dict(plan.config.given), {}
    wanted = {**_ALONE, "max_steps": plan.total, "save_steps": plan.steps, "output_dir": str(plan.output_dir(name))}
    if given.get("load_best_model_at_end"):
        wanted |= {"eval_strategy": "steps", "eval_steps": plan.steps}
    else:
        wanted |= _NO_EVALUATION
    if given.get("tokenized_path") and not _holds_something(given["tokenized_path"]):
        wanted["tokenized_path"] = GONE  # LlamaFactory would write it there
    if given.get("cache_dir") and not _other_hub():
        wanted["cache_dir"] = GONE  # data sets are cached there too; `child.environment` says where the model is
    if name == RESUMED:
        wanted |= {"resume_from_checkpoint": str(plan.checkpoint(BROKEN, plan.steps)), "overwrite_output_dir": False}
        if plan.take_away == "data_order":
            wanted |= other_order(given)
    for key, value in wanted.items():
        before = given.pop(key, None)
        if value is not GONE:
            given[key] = value
        if before != value and not (before is None and value in _NEUTRAL):
            changed[key] = {"from": before, "to": value}
    listed = [entry for entry in plan.config.callbacks if name_of(entry) not in (*_LEFT_OUT, "samples")]
    given["callbacks"] = [*listed, "samples"]
    if name == BROKEN:
        hold = {"step": plan.held, "told": str(plan.told), "parent": os.getpid()}
        given["callbacks"].append({"name": "llamafactory_obs.drill.resume.hold.Hold", "args": hold})
    given["obs"] = _settings(plan.config)
    return Derived(given, changed, [one for one in map(name_of, plan.config.callbacks) if one in _LEFT_OUT])


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
        found.append(
            "save_only_model: true in your config: its checkpoints hold no optimizer, scheduler or RNG state, so the"
            " real run could not continue; here it is off"
        )
    if given.get("ignore_data_skip"):
        found.append("ignore_data_skip: true in your config: a resume begins the epoch's data again")
    if given.get("resume_from_checkpoint"):
        found.append(f"resume_from_checkpoint {given['resume_from_checkpoint']} is left out: all trainings begin anew")
    if given.get("auto_find_batch_size"):
        found.append("auto_find_batch_size: after running out of memory a training goes on with a smaller batch")
    left_out = derive(plan, UNBROKEN).left_out
    found += [f"callback {name} is left out: it is a process of its own" for name in left_out]
    return found


def _settings(config: RunConfig) -> dict:
    """The `obs:` block without webhooks, commands and what no training reads."""
    settings = config.settings
    kept = {name: getattr(settings, name) for name in ("limit_gib", "margin_gib") if getattr(settings, name)}
    if settings.mask_range:
        kept["mask_range"] = list(settings.mask_range)
    control = {"listen": False}
    if settings.control.auto != "off":
        control |= {name: getattr(settings.control, name) for name in ("auto", "lr_scale", "max_times")}
        control["cooldown_steps"] = settings.control.cooldown_steps
    return {**kept, "control": control}


def _holds_something(path: object) -> bool:
    return os.path.isdir(str(path)) and bool(os.listdir(str(path)))


def _other_hub() -> bool:
    on = re.compile("1|true|y", re.IGNORECASE)
    return any(on.fullmatch(os.environ.get(name, "")) for name in ("USE_MODELSCOPE_HUB", "USE_OPENMIND_HUB"))
