"""`layer_norms`: gradient norm before clipping, weight norm and update/weight ratio per layer."""

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..record.schema import LAYERS
from .base import ObsCallback

_LAYER = re.compile(r"(?:^|\.)(layers|h|blocks|layer|block)\.(\d+)\.")
_LORA = re.compile(r"\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(?:\.|$)")
_PEFT_LEVELS = re.compile(r"\.(modules_to_save\.[^.]+|original_module|base_layer)(?=\.)")
_WRAPPERS = ("base_model.model.", "pretrained_model.", "module.", "_orig_mod.", "_fsdp_wrapped_module.")


@dataclass(eq=False)
class LayerNorms(ObsCallback):
    """Writes `layers.jsonl`: the names once, then numbers per step.

    Two views of the same parameters: `names`, by layer (`layers.0`, `embed_tokens` ...), and `modules`, by module type
    (`q_proj`, `mlp.up_proj` ...). LoRA's A and B are kept apart in both. Each view is complete: the root of the sum of
    squares over it is the global norm. Norms are Euclidean; the update ratio is |w_after - w_before| / |w_before|.

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
        if self.weights_every < 0:
            raise ValueError(f"weights_every must be 0 or more, got {self.weights_every}")

    def begin(self) -> None:
        self._views: dict[str, tuple[list[str], list[int]]] = {}
        self._parameters: list = []
        self._said: set[str] = set()
        self._before: list[torch.Tensor] | None = None
        self._weight_norms: torch.Tensor | None = None
        self._widest: tuple[str, float] | None = None

    def gradients(self, gradients) -> None:
        if gradients.norms is None:
            self._say_once("unavailable", _why_unseen(self.run.trainer))
            return
        if len(gradients.parameters) != len(self._parameters):
            self._name(gradients.parameters)
        if self.run.step % self.every == 0:
            self.run.defer([gradients.norms], lambda row, norms: row.facts.__setitem__("layer_grads", norms))
        if self.weights_every and self.run.step % self.weights_every == 0:
            self._look_at_weights()

    def updated(self) -> None:
        if self._weight_norms is None:
            return
        tensors = [self._weight_norms]
        if self._before is not None:
            with torch.no_grad():
                torch._foreach_sub_(self._before, [_local(p.detach()) for p in self._parameters])
                tensors.append(_norms(self._before, self._parameters))
        self._before, self._weight_norms = None, None
        self.run.defer(tensors, _keep_weights)

    def row(self, row) -> None:
        grads, weights = row.facts.get("layer_grads"), row.facts.get("layer_weights")
        if grads is None and weights is None:
            return
        measures = {"grad_norm": grads, "weight_norm": weights}
        line: dict = {"step": row.step}
        for measure, numbers in measures.items():
            if numbers is not None:
                line[measure] = _group(numbers, self._views["names"])
                line[f"module_{measure}"] = _group(numbers, self._views["modules"])
        updates = row.facts.get("layer_updates")
        if updates is not None:
            for prefix, view in (("", "names"), ("module_", "modules")):
                pairs = zip(_group(updates, self._views[view]), line[f"{prefix}weight_norm"], strict=True)
                line[f"{prefix}update_ratio"] = [u / w if w else None for u, w in pairs]
        if grads is not None:
            norms = [
                (norm if math.isfinite(norm) else math.inf, name)
                for norm, name in zip(line["grad_norm"], self._views["names"][0], strict=True)
            ]
            self._widest = max(norms)[::-1]
        self.run.append(LAYERS, line)

    def summary(self) -> dict:
        return {"largest_layer": self._widest[0], "its_grad_norm": self._widest[1]} if self._widest else {}

    def _name(self, parameters: list) -> None:
        """Sort the parameters into the two views and write their names, once."""
        self._parameters = list(parameters)
        names = self.run.parameter_names(self._parameters)
        for view, of in (("names", layer_of), ("modules", module_of)):
            groups = list(dict.fromkeys(of(name) for name in names))
            self._views[view] = (groups, [groups.index(of(name)) for name in names])
        header = {"step": self.run.step, "names": self._views["names"][0], "modules": self._views["modules"][0]}
        self.run.append(LAYERS, header)

    def _look_at_weights(self) -> None:
        size = sum(_local(p).numel() * p.element_size() for p in self._parameters)
        with torch.no_grad():
            weights = [_local(p.detach()) for p in self._parameters]
            self._weight_norms = _norms(weights, self._parameters)
            if size <= self.snapshot_limit_mib << 20:
                self._before = [weight.clone() for weight in weights]
            else:
                text = f"no update ratios: the trainable weights take {size >> 20} MiB, snapshot_limit_mib is lower"
                self._say_once("no_update_ratio", text)

    def _say_once(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self.run.event("unavailable", self.yaml_name, kind, text, level="warn")


def layer_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `layers.3.lora_A`; elsewhere the module's name."""
    name, lora = _plain(name), _LORA.search(name)
    layer = _LAYER.search(name)
    base = f"{layer[1]}.{layer[2]}" if layer else _module_path(name).rsplit(".", 1)[-1]
    return f"{base}.{lora[1]}" if lora else base


def module_of(name: str) -> str:
    """`model.layers.3.self_attn.q_proj.lora_A.default.weight` -> `q_proj.lora_A`; norms and biases keep their names."""
    name, lora = _plain(name), _LORA.search(name)
    base = _module_path(name).rsplit(".", 1)[-1]
    return f"{base}.{lora[1]}" if lora else base


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return _PEFT_LEVELS.sub("", name)


def _module_path(name: str) -> str:
    """The module that holds the parameter, LoRA's own levels left out."""
    lora = _LORA.search(name)
    return name[: lora.start()] if lora else name.rpartition(".")[0] or name


def _group(norms: list[float], view: tuple[list[str], list[int]]) -> list[float]:
    """Root of the sum of squares of each group."""
    groups, index = view
    squares = [0.0] * len(groups)
    for norm, group in zip(norms, index, strict=True):
        squares[group] += norm * norm
    return [math.sqrt(square) if square >= 0 else math.nan for square in squares]


def _keep_weights(row, weights: list[float], updates: list[float] | None = None) -> None:
    row.facts["layer_weights"], row.facts["layer_updates"] = weights, updates


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _norms(local: list[torch.Tensor], parameters: list) -> torch.Tensor:
    """Norms of whole parameters from their local parts; shape [P], float32. Sharded ones take one collective."""
    device = local[0].device
    norms = torch.stack([norm.to(device, torch.float32) for norm in torch._foreach_norm(local)])
    sharded = [p for p in parameters if hasattr(p, "to_local")]
    if sharded:
        import torch.distributed as dist

        squares = norms.square()
        dist.all_reduce(squares, group=sharded[0].device_mesh.get_group())
        norms = squares.sqrt()
    return norms


def _why_unseen(trainer) -> str:
    if getattr(trainer, "is_deepspeed_enabled", False):
        stage = trainer.args.hf_deepspeed_config.config.get("zero_optimization", {}).get("stage", 0)
        return (
            f"no per-layer norms: DeepSpeed (ZeRO-{stage}) reduces and clips the gradients inside its engine, where"
            " they cannot be seen before clipping; its global norm is recorded"
        )
    return "no per-layer norms: this engine keeps the gradients in flat buffers (FSDP1); its global norm is recorded"
