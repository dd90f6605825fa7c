"""One training step of the real model on fake tensors: what is alive beside the weights, and when it is most.

The model's own code runs, forward and backward, under the autocast, checkpointing and loss that LlamaFactory uses, on
tensors that have shapes and dtypes but no memory (`torch._subclasses.FakeTensorMode`). So the count follows the
installed transformers and PEFT, and no formula of ours. A stack of equal layers is run with 3 and with 5 of them and
continued to its depth: every moment that can be the highest grows by the same bytes per layer.
"""

import contextlib
import types
from dataclasses import dataclass

import torch
from torch._subclasses import FakeTensorMode

from ..run_config import quiet
from .live import ACTIVATIONS, KINDS, Live
from .parameters import Built
from .setup import Setup

#: depths that are run of a stack of equal layers
_SHALLOW = (3, 5)


@dataclass(frozen=True)
class Traced:
    """Bytes alive beside parameters, buffers and optimizer states.

    Attributes:
        stored: kept for the backward pass at the end of the forward pass, by kind.
        peak: at the highest moment of forward and backward, by kind.
        moment: where that is: `forward and loss`, `backward of the last layer`, ... .
        per_layer: activations that one layer adds to `stored`; None where the layers differ.
    """

    stored: dict[str, int]
    peak: dict[str, int]
    moment: str
    per_layer: float | None

    @property
    def peak_bytes(self) -> int:
        return sum(self.peak.values())


def trace(built: Built, setup: Setup, *, evaluation: bool = False) -> Traced:
    """Run one micro-batch and follow its memory.

    Args:
        evaluation: without gradients, with `eval_batch` rows.

    Raises:
        Exception: whatever the model's code raises on fake tensors (data-dependent routing, custom kernels).
    """
    rows = setup.eval_batch if evaluation else setup.rows
    with quiet(), FakeTensorMode(allow_non_fake_inputs=True), _fake(built), _unpacked():
        layers = _layers(built)
        if layers is None or len(layers[1]) <= max(_SHALLOW):
            stored, peaks = _run(built, setup, rows, layers[1] if layers else [], evaluation)
            return _result(stored, peaks, None)
        found = []
        for depth in _SHALLOW:
            with _cut(*layers, depth) as left:
                found.append(_run(built, setup, rows, left, evaluation))
    deep = len(layers[1])
    stored = _continue(found[0][0], found[1][0], deep)
    peaks = {phase: _continue(found[0][1][phase], found[1][1][phase], deep) for phase in found[0][1]}
    slope = (found[1][0][ACTIVATIONS] - found[0][0][ACTIVATIONS]) / (_SHALLOW[1] - _SHALLOW[0])
    return _result(stored, peaks, slope)


def _continue(few: dict, more: dict, depth: int) -> dict:
    a, b = _SHALLOW
    return {kind: max(0, round(few[kind] + (more[kind] - few[kind]) * (depth - a) / (b - a))) for kind in KINDS}


def _result(stored: dict, peaks: dict, per_layer: float | None) -> Traced:
    moment = max(peaks, key=lambda phase: sum(peaks[phase].values()))
    return Traced(stored, peaks[moment], moment, per_layer)


def _layers(built: Built):
    """`(parent, layers)` of the language model's stack if all its layers are equal, else None."""
    depth = getattr(built.text, "num_hidden_layers", None)
    kinds = getattr(built.text, "layer_types", None)
    stacks = [
        (module, name, child)
        for module in built.model.modules()
        for name, child in module.named_children()
        if isinstance(child, torch.nn.ModuleList) and len(child) == depth
    ]
    if len(stacks) != 1 or (kinds and len(set(kinds)) > 1):
        return None
    parent, name, stack = stacks[0]

    def looks(layer):
        tensors = [(n, tuple(p.shape), p.dtype, p.requires_grad) for n, p in layer.named_parameters()]
        return type(layer), tensors

    first = looks(stack[0])
    return ((parent, name), list(stack)) if all(looks(layer) == first for layer in stack) else None


@contextlib.contextmanager
def _cut(place, layers, depth: int):
    parent, name = place
    setattr(parent, name, torch.nn.ModuleList(layers[:depth]))
    try:
        yield layers[:depth]
    finally:
        setattr(parent, name, torch.nn.ModuleList(layers))


@contextlib.contextmanager
def _fake(built: Built):
    """The meta model's tensors replaced by fake ones on the CPU, where autocast and fused attention have kernels."""
    before, made = [], {}
    for prefix, module in built.model.named_modules():
        for store in (module._parameters, module._buffers):
            for name, tensor in store.items():
                if tensor is None:
                    continue
                before.append((store, name, tensor))
                if id(tensor) not in made:
                    fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    fake = torch.nn.Parameter(fake, tensor.requires_grad) if store is module._parameters else fake
                    made[id(tensor)] = fake
                store[name] = made[id(tensor)]
        if prefix.removeprefix("base_model.model.").removesuffix(".base_layer") in built.quantised and isinstance(
            module, torch.nn.Linear
        ):
            module.forward = types.MethodType(_quantised_forward, module)
    try:
        yield
    finally:
        for store, name, tensor in before:
            store[name] = tensor
        for module in built.model.modules():
            if isinstance(module, torch.nn.Linear):
                module.__dict__.pop("forward", None)


@contextlib.contextmanager
def _unpacked():
    """transformers' answer, None, for one sequence in each row.

    Without a mask it looks for packed rows in the values of `position_ids`, and makes a mask where it sees no values.
    """
    from transformers import masking_utils

    before = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = before


class _Dequantised(torch.autograd.Function):
    """As bitsandbytes' `MatMul4Bit`: the weight in the compute dtype is made for the product and made again for the
    gradient; of the input nothing is kept."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(weight)
        return torch.nn.functional.linear(x, torch.empty_like(weight, dtype=x.dtype), bias)

    @staticmethod
    def backward(ctx, gradient):
        (weight,) = ctx.saved_tensors
        return gradient @ torch.empty_like(weight, dtype=gradient.dtype), None, None


def _quantised_forward(self, x):
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else self.weight.dtype
    bias = None if self.bias is None else self.bias.to(dtype)
    return _Dequantised.apply(x.to(dtype), self.weight, bias).to(x.dtype)


def _run(built: Built, setup: Setup, rows: int, layers: list, evaluation: bool):
    """`(alive after the forward pass, phase -> kind -> bytes at the phase's highest moment)`."""
    model = built.model
    live = Live(model, built.model.get_input_embeddings().weight.shape[0], rows * setup.length)
    trained = [p for p in model.parameters() if p.requires_grad]
    hooks = [p.register_post_accumulate_grad_hook(live.gradient) for p in trained]
    hooks += _phases(live, layers)
    try:
        if setup.accumulation > 1 and not evaluation:  # the gradients of the micro-batches before
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
                live.gradient(parameter)
        with live, torch.enable_grad() if not evaluation else torch.no_grad():
            loss = _forward(model, setup, rows, live)
            stored = dict(live.now)
            if not evaluation:
                live.enter("backward of the head and the last layer")
                live.backward = True
                loss.backward()
        return stored, live.peaks
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in trained:
            parameter.grad = None


def _phases(live: Live, layers: list) -> list:
    """The backward pass in three phases: up to the last layer's gradients, the layers between, from the first on."""
    if len(layers) < _SHALLOW[0]:
        return []
    hooks = []
    for index, phase in ((len(layers) - 1, "backward of the layers"), (1, "backward of the first layer")):
        for parameter in layers[index].parameters():
            if parameter.requires_grad:
                hooks.append(parameter.register_post_accumulate_grad_hook(lambda _, phase=phase: live.enter(phase)))
    return hooks


def _forward(model, setup: Setup, rows: int, live: Live) -> torch.Tensor:
    """The loss as LlamaFactory's trainer of the stage computes it, on a batch of full rows with some padding."""
    ids = torch.zeros(rows, setup.length, dtype=torch.long)
    mask = _mask(model, setup, rows)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(setup.precision)

    def call(**more):
        from accelerate.utils import convert_outputs_to_fp32

        run = torch.autocast("cpu", dtype=dtype)(model.forward) if dtype else model.forward
        run = convert_outputs_to_fp32(run) if dtype else run  # as accelerate's `prepare_model`
        return run(input_ids=ids, attention_mask=mask, use_cache=False, **more)

    if setup.liger and setup.stage in ("pt", "sft") and torch.is_grad_enabled():  # an evaluation makes its logits
        return call(logits_to_keep=1).logits.float().sum()  # the fused loss keeps no logits: see `estimate`
    if setup.stage in ("pt", "sft"):
        return call(labels=ids, num_items_in_batch=torch.tensor(1)).loss
    logits = call(**({"output_hidden_states": True} if setup.stage == "rm" else {})).logits.to(torch.float32)
    if setup.stage == "rm":
        return logits.sum() * 0  # the value head reads the hidden states: its own bytes are few
    chosen = _log_probabilities(logits, ids)
    if torch.is_grad_enabled():
        with torch.no_grad():
            _log_probabilities(call().logits.to(torch.float32), ids)  # the reference
    return chosen.sum()


def _log_probabilities(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """As LlamaFactory's `get_batch_logps`."""
    labels = ids[:, 1:].clone()
    each = torch.gather(logits[:, :-1, :].log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    return (each * (labels != -100)).sum(-1)


def _mask(model, setup: Setup, rows: int) -> torch.Tensor | None:
    """None for flash attention (it takes lengths); else what transformers makes of a padded batch."""
    if setup.attention == "fa2":
        return None
    shape = (rows, 1, setup.length, setup.length)
    eager = getattr(model.config, "_attn_implementation", "sdpa") == "eager"
    return torch.zeros(shape, dtype=next(model.parameters()).dtype) if eager else torch.ones(shape, dtype=torch.bool)
