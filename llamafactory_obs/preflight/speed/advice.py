"""How many `dataloader_num_workers` pay: worked out from the time to load, believed once it was measured."""

import math
from dataclasses import dataclass, field

from ...texts import text
from .joined import Joined, Timed
from .layers import Layer, Steps

#: a gain below this share of a step is not worth another setting
WORTH = 0.02


@dataclass(frozen=True)
class Tried:
    """A number of workers that was measured.

    Attributes:
        workers: their number.
        seconds_per_step: model and loader, with the start of the processes spread over a pass over the data.
        layer: the loader's part in it.
        start_s: from the start of a pass to its first batch.
        tokens_per_sec: of one process.
    """

    workers: int
    seconds_per_step: float
    layer: Layer
    start_s: float
    tokens_per_sec: float


@dataclass(frozen=True)
class Advice:
    """What to set.

    Attributes:
        current: of the config.
        tried: all that were measured, the current one first.
        recommended: the fewest of those that are as fast as the fastest, the current one where nothing is worth it.
        gain: share of the time of model and loader that it saves.
        load_s: seconds to load the batches of one step in the main process; None where that is not possible.
        load_cpu_s: of this, computing.
        needed: workers that would hide loading; None where it is not known.
        most: workers that the cores left over can keep busy.
        usable_cpus: what this process may use.
        why: for people.
    """

    current: int
    tried: list[Tried] = field(default_factory=list)
    recommended: int = 0
    gain: float = 0.0
    load_s: float | None = None
    load_cpu_s: float | None = None
    needed: int | None = None
    most: int | None = None
    usable_cpus: float = math.nan
    why: str = ""

    @property
    def yaml(self) -> str | None:
        """The line to change; None where nothing is to be changed."""
        return None if self.recommended == self.current else f"dataloader_num_workers: {self.recommended}"


def advise(found: dict, joined: Joined, steps: Steps, steps_per_pass: float) -> Advice:
    """Compare what was measured.

    Args:
        found: of `speed.json`.
        steps_per_pass: optimizer steps in one pass over the data of the whole run.
    """
    current, measured = found["current_workers"], found.get("workers") or {}
    tried = [_tried(current, found, joined, steps, steps_per_pass)]
    tried += [_tried(one, found, joined, steps, steps_per_pass) for one in measured.get("tried", ())]
    tried = [one for one in tried if one is not None]
    fastest = min(one.seconds_per_step for one in tried)
    now = tried[0].seconds_per_step
    noise = 2 * steps.noise_s if math.isfinite(steps.noise_s) else 0.0
    close = max(WORTH * now, noise)
    best = min((one for one in tried if one.seconds_per_step <= fastest + close), key=lambda one: one.workers)
    if now - best.seconds_per_step <= close:
        best = tried[0]
    load = measured.get("load") or {}
    accumulation = found["accumulation"]
    advice = Advice(
        current=current,
        tried=tried,
        recommended=best.workers,
        gain=max(0.0, 1 - best.seconds_per_step / now),
        load_s=load["wall_s"] * accumulation if load else None,
        load_cpu_s=load["cpu_s"] * accumulation if load else None,
        needed=measured.get("needed"),
        most=measured.get("most"),
        usable_cpus=measured.get("usable_cpus", math.nan),
    )
    return Advice(**{**vars(advice), "why": _why(advice, steps.model_s)})


def _tried(number: int, found: dict, joined: Joined, steps: Steps, steps_per_pass: float) -> Tried | None:
    block = joined.block(f"loader:{number}")
    if not block:
        return None
    layer = steps.loader(block, number)
    start_s = max(found["starts"].get(str(number), [0.0]))
    seconds = steps.model_s + layer.seconds_per_step + start_s * starts_to_pay(found, block, number) / steps_per_pass
    return Tried(number, seconds, layer, start_s, steps.tokens / seconds)


def starts_to_pay(found: dict, block: list[Timed], workers: int) -> bool:
    """Does each pass over the data cost a start besides the waits of the block?

    Not where the workers persist, nor where every step begins a pass: there the waits hold it.
    """
    return not (found["persistent_workers"] and workers) and not all(step.began for step in block)


def _why(advice: Advice, model_s: float) -> str:
    if advice.needed is None:
        return text("speed.advice.no_batch")
    load = text("speed.advice.load", load=_ms(advice.load_s), model=_ms(model_s))
    if advice.recommended != advice.current:
        return text("speed.advice.gain", load=load, workers=advice.recommended, gain=advice.gain)
    if advice.needed > advice.most:
        return text("speed.advice.needed", load=load, needed=advice.needed, most=advice.most)
    others = [str(one.workers) for one in advice.tried[1:]]
    if others:
        return text("speed.advice.no_gain", load=load, tried=" and ".join(others), worth=WORTH)
    if not advice.needed:
        return text("speed.advice.nothing", load=load)
    return text("speed.advice.hides", load=load, workers=advice.current)


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
