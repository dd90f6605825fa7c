"""`layer_norms`: gradient norm before clipping, weight norm and update/weight ratio per layer."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ..record.schema import LAYERS
from .base import ObsCallback
from .layer_names import layers_of, module_of
from .weight_change import WeightChange


@dataclass
class _View:
    """One way to sort the trainable parameters: the names of the groups and each parameter's group."""

    names: list[str]
    index: list[int]

    @classmethod
    def of(cls, groups: list[str]) -> "_View":
        names = list(dict.fromkeys(groups))
        return cls(names, [names.index(group) for group in groups])

    def combine(self, norms: list[float], members: list[int]) -> list[float | None]:
        """Root of the sum of squares of each group; None for a group of which no member is there."""
        squares: list[float | None] = [None] * len(self.names)
        for norm, member in zip(norms, members, strict=True):
            group = self.index[member]
            squares[group] = (squares[group] or 0.0) + norm * norm
        return [None if square is None else math.sqrt(square) for square in squares]


@dataclass(eq=False)
class LayerNorms(ObsCallback):
    """Writes `layers.jsonl`: the names once, then numbers per step.

    Two views of the same trainable parameters: `names`, by layer (`layers.0`, `embed_tokens` ...), and `modules`, by
    module type (`q_proj`, `up_proj` ...). LoRA's A and B are kept apart in both. Each view is complete: the root of the
    sum of squares over it is the global norm. A group without any gradient in a step has null, not 0. Norms are
    Euclidean; the update ratio is |w_after - w_before| / |w_before|.

    The gradient norms cost nothing extra: they are those that clipping computes anyway. Weight norms and update ratios
    take passes over the trainable weights and a copy of them, so they are made every `weights_every` steps.
    """

    yaml_name: ClassVar[str] = "layer_norms"

    every: int = 1
    """Gradient norms: every N optimizer steps."""

    weights_every: int = 10
    """Weight norms and update ratios: every N optimizer steps; 0 = never."""

    snapshot_limit_mib: int = 512
    """The update ratio needs a copy of the trainable weights for the length of one update: not above this size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"every must be 1 or more, got {self.every}")
        if self.weights_every < 0 or self.snapshot_limit_mib < 0:
            raise ValueError("weights_every and snapshot_limit_mib must be 0 or more")

    def begin(self) -> None:
        named = [(name, p) for name, p in self.run.trainer.model.named_parameters() if p.requires_grad]
        self._parameters = [p for _, p in named]
        self._place = {id(p): i for i, p in enumerate(self._parameters)}
        names = [name for name, _ in named]
        self._layers, self._modules = _View.of(layers_of(names)), _View.of([module_of(name) for name in names])
        self._seen: tuple[list[int], list[int]] = ([], [])
        self._said: set[str] = set()
        self._change: WeightChange | None = None
        self._largest: tuple[str, float] | None = None
        header = {"step": self.run.step, "names": self._layers.names, "modules": self._modules.names}
        self.run.append(LAYERS, header)

    def gradients(self, gradients) -> None:
        if gradients.norms is None:
            self._say_once("no per-layer norms", _why_unseen(self.run.trainer))
            return
        if self.run.step % self.every == 0:
            members = self._members(gradients.parameters)
            self.run.defer([gradients.norms], lambda row, norms: row.facts.update(layer_grads=(norms, members)))
        if self.weights_every and self.run.step % self.weights_every == 0:
            self._look_at_weights()

    def updated(self) -> None:
        if self._change is None:
            return
        change, self._change = self._change, None
        updates, places = change.after_update(), change.places(self._parameters)
        tensors = [change.weights] + ([updates] if updates is not None else [])

        def finish(row, *norms: list[float]) -> None:
            row.facts["layer_weights"] = [[norm[place] for place in places] for norm in norms]

        self.run.defer(tensors, finish)

    def row(self, row) -> None:
        line: dict = {"step": row.step}
        grads, weights = row.facts.get("layer_grads"), row.facts.get("layer_weights")
        everyone = range(len(self._parameters))
        for prefix, view in (("", self._layers), ("module_", self._modules)):
            if grads is not None:
                line[f"{prefix}grad_norm"] = view.combine(*grads)
            if weights is not None:
                line[f"{prefix}weight_norm"] = view.combine(weights[0], everyone)
            if weights is not None and len(weights) == 2:
                pairs = zip(view.combine(weights[1], everyone), line[f"{prefix}weight_norm"], strict=True)
                line[f"{prefix}update_ratio"] = [update / weight if weight else None for update, weight in pairs]
        if len(line) == 1:
            return
        self.run.append(LAYERS, line)
        norms = [
            (n, name) for n, name in zip(line.get("grad_norm", []), self._layers.names, strict=False) if n is not None
        ]
        if norms:
            self._largest = max(norms, key=lambda pair: pair[0] if math.isfinite(pair[0]) else math.inf)

    def summary(self) -> dict:
        return {"largest_layer": self._largest[1], "its_grad_norm": self._largest[0]} if self._largest else {}

    def _members(self, parameters: list) -> list[int]:
        """The places of the parameters that have a gradient, which is the same list nearly every step."""
        ids = [id(p) for p in parameters]
        if ids != self._seen[0]:
            self._seen = (ids, [self._place[i] for i in ids])
        return self._seen[1]

    def _look_at_weights(self) -> None:
        self._change = WeightChange.before_update(self.run, self._parameters, self.snapshot_limit_mib)
        if self._change.size > self.snapshot_limit_mib << 20:
            size = f"{self._change.size >> 20} MiB"
            self._say_once(
                "no update ratio", f"no update ratios: the trainable weights take {size}, above snapshot_limit_mib"
            )

    def _say_once(self, title: str, text: str) -> None:
        if title not in self._said:
            self._said.add(title)
            self.run.event("unavailable", self.yaml_name, title, text, level="warn")


def _why_unseen(trainer) -> str:
    if getattr(trainer, "is_deepspeed_enabled", False):
        stage = trainer.args.hf_deepspeed_config.config.get("zero_optimization", {}).get("stage", 0)
        return (
            f"no per-layer norms: DeepSpeed (ZeRO-{stage}) reduces and clips the gradients inside its engine, where"
            " they cannot be seen before clipping; its global norm is recorded"
        )
    return "no per-layer norms: this engine keeps the gradients in flat buffers (FSDP1); its global norm is recorded"
