"""What the measuring run found: layers, workers, the whole run, and the one thing to change first."""

import math
from dataclasses import dataclass, field

from ...texts import text
from .advice import Advice
from .layers import Layer

#: a layer beside the model that takes more than this share of the time is not fine
TOO_DEAR = 0.20
#: padding of more than this share of the places is worth a hint
_PADDING = 0.20
#: what an occasional layer may cost after the change that is proposed
_GOAL = 0.05
#: evaluations and saves that a run keeps, whatever they cost
_KEEP = 6


@dataclass
class Report:
    """All of it.

    Attributes:
        config: file name.
        device: what was measured on.
        layers: the model first.
        tokens_per_step: real tokens of one step of one process.
        padding: share of the places for tokens that hold none; None where it is not known.
        advice: about workers.
        whole_run: hours and, with a price, money.
        noise: share of the model's time under which nothing can be seen; None where it is not known.
        check: the step measured with the real loader against model and loader added up, in seconds.
        preparation: seconds before step 1.
        limits: what was not measured, or not as in the run.
        seconds: what the measurement took.
        failed: the log's last words where the run broke off; then all else is empty.
    """

    config: str
    device: str = ""
    layers: list[Layer] = field(default_factory=list)
    tokens_per_step: float = 0.0
    padding: float | None = None
    advice: Advice | None = None
    whole_run: dict = field(default_factory=dict)
    noise: float | None = None
    check: dict = field(default_factory=dict)
    preparation: dict = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)

    @property
    def seconds_per_step(self) -> float:
        """All layers: they add up to the mean step of the whole run."""
        return sum(layer.seconds_per_step for layer in self.layers)

    def share(self, layer: Layer) -> float:
        """A layer's part of the whole."""
        return layer.seconds_per_step / self.seconds_per_step if self.seconds_per_step else 0.0

    @property
    def dear(self) -> list[Layer]:
        """Layers beside the model that take more than `TOO_DEAR`, the dearest first."""
        found = [layer for layer in self.layers if layer.name != "model" and self.share(layer) > TOO_DEAR]
        return sorted(found, key=self.share, reverse=True)

    @property
    def exit_code(self) -> int:
        """1 where the run broke off or a layer beside the model is too dear, else 0."""
        return int(not self.layers or bool(self.dear))

    @property
    def first(self) -> str:
        """The one thing to change first."""
        if not self.layers:
            return text("speed.first.broke_off")
        dearest = max(filter(self._curable, self.layers), key=self.share, default=None)
        if dearest is not None:
            return self._cure(dearest)
        if self.advice is not None and self.advice.yaml:
            return text("speed.first.workers", yaml=self.advice.yaml, gain=self.advice.gain)
        if self.padding is not None and self.padding > _PADDING:
            return text("speed.first.padding", share=self.padding, cure=_against_padding())
        return text("speed.first.nothing")

    def _curable(self, layer: Layer) -> bool:
        """Is it dear enough for a change? Of a loader that no number of workers helps, only where it is too dear."""
        if layer.name == "model":
            return False
        stuck = layer.name == "loader" and (self.advice is None or not self.advice.yaml)
        return self.share(layer) > (TOO_DEAR if stuck else _GOAL)

    def _cure(self, layer: Layer) -> str:
        share = text("speed.first.takes", name=layer.name, share=self.share(layer))
        steps = self.whole_run.get("steps", 0)
        if layer.name == "loader":
            if self.advice is not None and self.advice.yaml:
                return text("speed.first.loader", share=share, yaml=self.advice.yaml, gain=self.advice.gain)
            return text("speed.first.cheaper", share=share)
        if layer.name == "logging":
            return text("speed.first.log", share=share, every=self._rarer(layer, self.whole_run.get("log_every") or 1))
        if layer.name == "callbacks":
            return text("speed.first.callbacks", share=share, detail=layer.detail)
        times = self.whole_run["evaluations" if layer.name == "evaluation" else "saves"]
        every = self._rarer(layer, steps / max(times, 1))
        key = "eval_steps" if layer.name == "evaluation" else "save_steps"
        if every * _KEEP <= steps:
            return text("speed.first.rarer", share=share, key=key, every=every)
        if layer.name == "evaluation":
            return text("speed.first.fewer", share=share)
        return text("speed.first.disk", share=share)

    def _rarer(self, layer: Layer, every: float) -> int:
        """Steps between two so that it takes `_GOAL` of the time."""
        rest = self.seconds_per_step - layer.seconds_per_step
        return math.ceil(every * layer.seconds_per_step / (rest * _GOAL / (1 - _GOAL)))

    def as_dict(self) -> dict:
        """For `--json`; a number that is not known is null."""
        layers, so_far = [], 0.0
        for layer in self.layers:
            so_far += layer.seconds_per_step
            layers.append(
                {
                    "name": layer.name,
                    "seconds_per_step": layer.seconds_per_step,
                    "share": self.share(layer),
                    "tokens_per_sec": self.tokens_per_step / so_far if so_far else None,
                    "spread": layer.spread,
                    "at_most": layer.at_most,
                    "detail": layer.detail,
                }
            )
        return {
            "config": self.config,
            "device": self.device,
            "status": "failed" if not self.layers else "too_dear" if self.dear else "fine",
            "seconds_per_step": self.seconds_per_step if self.layers else None,
            "tokens_per_step": self.tokens_per_step if self.layers else None,
            "layers": layers,
            "workers": _workers(self.advice),
            "whole_run": self.whole_run,
            "preparation": self.preparation,
            "padding": self.padding,
            "noise": self.noise,
            "check": self.check,
            "too_dear": [layer.name for layer in self.dear],
            "first": self.first,
            "limits": self.limits,
            "last_words": self.failed,
            "seconds": self.seconds,
        }


def _workers(advice: Advice | None) -> dict:
    if advice is None:
        return {}
    tried = [
        {
            "workers": one.workers,
            "seconds_per_step": one.seconds_per_step,
            "loader_seconds": one.layer.seconds_per_step,
            "start_seconds": one.start_s,
            "tokens_per_sec": one.tokens_per_sec,
        }
        for one in advice.tried
    ]
    return {
        "current": advice.current,
        "recommended": advice.recommended,
        "gain": advice.gain,
        "yaml": advice.yaml,
        "load_seconds": advice.load_s,
        "load_cpu_seconds": advice.load_cpu_s,
        "needed": advice.needed,
        "most": advice.most,
        "usable_cpus": advice.usable_cpus if math.isfinite(advice.usable_cpus) else None,
        "measured": tried,
        "why": advice.why,
    }


def _against_padding() -> str:
    return text("speed.first.group")
