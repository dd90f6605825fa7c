"""What the settings of a run say: what it is, and behind which steps it evaluates and saves."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..logs.record import settings_of, sound
from ..record.reader import decode_run
from ..record.schema import RUN
from ..settings import parse_price


@dataclass(frozen=True)
class Plan:
    """Of `run.json`; empty where there is none.

    Attributes:
        settings: LlamaFactory's arguments, flat.
        about: for a heading, see `Snapshot.about`.
        price: per hour, and its currency; of `obs: {price: ...}`.
        process_started: segment -> when its process began, Unix seconds.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    nodes: int = 1
    price: tuple[float | None, str] = (None, "")
    process_started: dict[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        name = self.settings.get("run_name")
        return name if isinstance(name, str) and name else None

    @property
    def epochs(self) -> float | None:
        """`num_train_epochs`; with `max_steps` in the config it does not count."""
        if (most := self.settings.get("max_steps")) and isinstance(most, (int, float)) and most > 0:
            return None
        epochs = self.settings.get("num_train_epochs")
        return float(epochs) if type(epochs) in (int, float) and abs(epochs) < 1e12 else None

    def evaluates(self, step: int, epoch: float | None, max_steps: int | None) -> bool:
        """Is there an evaluation behind this step? As `transformers.trainer_callback.DefaultFlowCallback` has it."""
        delay = self.settings.get("eval_delay") or 0
        strategy = self.settings.get("eval_strategy")
        if strategy == "epoch":
            return _is_whole(epoch) and epoch >= delay
        if strategy == "steps" and step >= delay:
            return step == max_steps or _is_due(step, self.settings.get("eval_steps"), max_steps)
        return False

    def saves(self, step: int, epoch: float | None, max_steps: int | None) -> bool:
        """Is there a save behind this step? (`best` saves only now and then: not foreseen.)"""
        strategy = self.settings.get("save_strategy")
        if strategy == "epoch":
            return _is_whole(epoch)
        if strategy == "steps":
            return step == max_steps or _is_due(step, self.settings.get("save_steps"), max_steps)
        return False


def read_plan(folder: Path) -> Plan:
    """The plan of the record in this `obs/` folder."""
    run = sound(decode_run(folder / RUN))
    settings = settings_of(run)
    model, world, hardware = (run.get(name) or {} for name in ("model", "world", "hardware"))
    gpus = [str(gpu.get("name")) for gpu in hardware.get("gpus") or [] if isinstance(gpu, dict) and gpu.get("name")]
    sizes = [gpu.get("memory_gib") for gpu in hardware.get("gpus") or [] if isinstance(gpu, dict)]
    memory = [size for size in sizes if type(size) in (int, float) and size > 0]
    words = {"model": model.get("name_or_path"), "engine": world.get("engine")}
    words |= {name: settings.get(name) for name in ("stage", "finetuning_type", "template")}
    about = {name: word for name, word in words.items() if isinstance(word, str)}
    about |= {"gpus": gpus} if gpus else {}
    about |= {"gpu_memory_gib": min(memory)} if memory else {}
    about |= {"world_size": world.get("world_size")} if type(world.get("world_size")) is int else {}
    nodes = world.get("nodes")
    return Plan(settings, about, nodes if isinstance(nodes, int) and nodes > 0 else 1, _price(run), _started(run))


def _price(run: dict) -> tuple[float | None, str]:
    given = (run.get("config") or {}).get("given")
    options = given.get("obs") if isinstance(given, dict) else None
    try:
        return parse_price(options.get("price") if isinstance(options, dict) else None) or (None, "")
    except ConfigError:  # a record of somebody else's making
        return None, ""


def _started(run: dict) -> dict[int, float]:
    segments = run.get("segments")
    known = [one for one in segments if isinstance(one, dict)] if isinstance(segments, list) else []
    found = [(one.get("segment"), one.get("process_started")) for one in known]
    return {
        at: float(time) for at, time in found if type(at) is int and type(time) in (int, float) and abs(time) < 1e12
    }


def _is_due(step: int, every: object, max_steps: int | None) -> bool:
    """`every` below 1 is a share of all steps (`TrainerState.compute_steps`)."""
    if not isinstance(every, (int, float)) or isinstance(every, bool) or not every > 0:
        return False
    if every < 1:
        if not max_steps:
            return False
        every = math.ceil(max_steps * every)
    return step % int(every) == 0


def _is_whole(epoch: float | None) -> bool:
    return bool(epoch) and math.isfinite(epoch) and abs(epoch - round(epoch)) < 1e-6
