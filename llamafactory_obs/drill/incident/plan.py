"""What a drill trains: a healthy twin and one training for each incident, all of one config."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from ...plugin.registry import OWN
from ...preflight.rehearsal.derive import GONE, Derived, name_of
from ...preflight.run_config import RunConfig
from .. import alone
from .incidents import HEALTHY, INCIDENTS
from .planted import VARIABLE

#: what must be on record for a cause to be found; those that the config does not list are added
NEEDED = tuple(
    ["grad_norm_spike", "label_mask", "vram", "throughput", "system", "optimizer", "quality", "samples", "diagnose"]
)
_PLANT = "llamafactory_obs.drill.incident.plant.Plant"
#: the share of the steps that a warm-up may take: the incident must come after it
_WARM_UP = 0.1


@dataclass(frozen=True)
class Plan:
    """One drill.

    Attributes:
        config: of the real run.
        folder: the drill's own, absolute.
        names: of the incidents, in their order.
        steps: of each training.
        at: the step of the incident, counted from 1.
        ranks: training processes.
        keep: the trainings' folders stay, whole.
    """

    config: RunConfig
    folder: Path
    names: tuple[str, ...]
    steps: int
    at: int
    ranks: int = 1
    keep: bool = False

    @property
    def trainings(self) -> tuple[str, ...]:
        """All of them, in their order."""
        return (HEALTHY, *self.names)

    def onset(self, name: str) -> int:
        """The first step of an incident."""
        return 1 if INCIDENTS[name].from_start else self.at

    def output_dir(self, name: str) -> Path:
        """Of one training. Its name says nothing: `diagnose` sees it."""
        return self.folder / f"training-{self.trainings.index(name) + 1}"

    def log(self, name: str) -> Path:
        """What one training printed."""
        return self.folder / f"{self.output_dir(name).name}.log"

    def told(self, name: str) -> Path:
        """What the fault says of itself, to the drill alone."""
        return self.folder / f"{self.output_dir(name).name}.fault.json"

    def variables(self, name: str) -> dict[str, str]:
        """What a training's environment holds: only there it stands what is planted; nothing for the healthy twin."""
        if name == HEALTHY:
            return {}
        return {VARIABLE: json.dumps({"fault": name, "at": self.onset(name), "told": str(self.told(name))})}


def derive(plan: Plan, name: str) -> Derived:
    """The config of one training; but for `output_dir` the same for all."""
    wanted = {
        **alone.NO_EVALUATION,
        "max_steps": plan.steps,
        "save_strategy": "no",
        "auto_find_batch_size": GONE,
        **_short_warm_up(plan),
    }
    callbacks = [_PLANT, *_callbacks(plan.config)]
    return alone.derive(plan.config, plan.output_dir(name), wanted, callbacks, alone.own_settings(plan.config))


def added(config: RunConfig) -> list[str]:
    """Callbacks that the config does not list and the drill takes beside."""
    listed = {name_of(entry) for entry in config.callbacks}
    return [name for name in NEEDED if name not in listed]


def notes(plan: Plan) -> list[tuple[str, dict]]:
    """What a person should know about the difference between these trainings and the real run, as (text, values)."""
    given, found = plan.config.given, []
    if names := added(plan.config):
        found.append(("note.added", {"names": ", ".join(names)}))
    if warm_up := _short_warm_up(plan):
        [(key, value)] = warm_up.items()
        found.append(("note.warm_up", {"key": key, "value": f"{value:g}", "was": given.get(key)}))
    if given.get("auto_find_batch_size"):
        found.append(("note.auto_batch", {}))
    if plan.config.settings.control.auto != "off":
        found.append(("note.auto", {"auto": plan.config.settings.control.auto}))
    found += [("note.left_out", {"name": name}) for name in alone.left_out(plan.config)]
    return found


def keep_record(plan: Plan, name: str) -> None:
    """Of a training that has been judged only the record stays."""
    if plan.keep or not plan.output_dir(name).is_dir():
        return
    for one in plan.output_dir(name).iterdir():
        if one.name != "obs":
            shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink(missing_ok=True)


def _callbacks(config: RunConfig) -> list:
    listed = alone.own_callbacks(config, but=("early_stopping", "samples"))  # `samples` logs every step
    return [*map(_without_action, listed), *dict.fromkeys([*added(config), "samples"])]


def _without_action(entry: object) -> object:
    """One of ours that would save or stop at the incident only warns: what follows is wanted on record."""
    if not isinstance(entry, dict) or name_of(entry) not in OWN:
        return entry
    options = entry.get("args") if "name" in entry else entry[name_of(entry)]
    if not isinstance(options, dict) or options.get("action", "warn") == "warn":
        return entry
    return {name_of(entry): {**options, "action": "warn"}}


def _short_warm_up(plan: Plan) -> dict:
    """The key of a warm-up that would still last when the incident comes, with a shorter one."""
    given = plan.config.given
    most = int(plan.steps * _WARM_UP)
    steps, ratio = given.get("warmup_steps"), given.get("warmup_ratio")
    if isinstance(steps, (int, float)) and (steps * plan.steps if steps < 1 else steps) > most:
        return {"warmup_steps": most}
    if not steps and isinstance(ratio, (int, float)) and ratio > _WARM_UP:
        return {"warmup_ratio": _WARM_UP}
    return {}
