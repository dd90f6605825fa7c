"""What the optimizer holds, and what one step of it needs for a moment."""

import math
from dataclasses import dataclass

from .parameters import Parameter

#: bitsandbytes' 8-bit optimizers: weights with fewer values keep fp32 states (`Optimizer2State(min_8bit_size=4096)`),
#: and one fp32 constant stands for so many values (`blocksize=256`)
_SMALL, _BLOCK = 4096, 256

#: names of transformers' `OptimizerNames` -> states per parameter in the parameter's (or gradient's) own dtype
_PLAIN = {
    **dict.fromkeys(["adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused"], 2),
    **dict.fromkeys(["adamw_apex_fused", "adamw_anyprecision", "grokadamw", "stable_adamw"], 2),
    **dict.fromkeys(["schedule_free_radam", "schedule_free_adamw"], 2),
    **dict.fromkeys(["adagrad", "rmsprop", "schedule_free_sgd"], 1),
    **dict.fromkeys(["sgd", "lomo", "adalomo"], 0),
}
#: bitsandbytes in 32 bit: states are fp32 whatever the parameter is
_FP32 = {
    "paged_adamw_32bit": 2,
    "ademamix": 3,
    "paged_ademamix_32bit": 3,
    **dict.fromkeys(["lion_32bit", "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit"], 1),
}
#: bitsandbytes (and torchao's `adamw_torch_8bit`) in 8 bit
_INT8 = {
    **dict.fromkeys(["adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"], 2),
    **dict.fromkeys(["ademamix_8bit", "paged_ademamix_8bit"], 3),
    **dict.fromkeys(["lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit"], 1),
}


@dataclass(frozen=True)
class States:
    """`bytes` of all states; `step_bytes` needed for a moment in `step()`; `formula` and a `note` for what is rough."""

    bytes: int
    step_bytes: int
    formula: str
    note: str = ""


def states(optim: str, finetuning, trained: list[Parameter]) -> States:
    """The states of LlamaFactory's optimizer for these trained parameters.

    Args:
        optim: the key `optim`; LlamaFactory's own switches (`use_galore`, `use_badam` ...) come before it.
        finetuning: LlamaFactory's finetuning arguments.
    """
    if finetuning.use_galore or finetuning.use_apollo:
        return _projected(finetuning, trained)
    if finetuning.use_badam:
        return _badam(trained)
    if finetuning.use_adam_mini:
        size = sum(p.bytes for p in trained)
        note = "Adam-mini: one moment per parameter; its second moments (one per head or row) are left out"
        return States(size, 0, "1 state in the parameter's dtype", note)
    if finetuning.use_muon:
        return _muon(trained)
    return _by_name(optim, trained)


def name_of(optim: str, finetuning) -> str:
    """The optimizer that LlamaFactory takes: its own switches come before `optim`."""
    own = (name for name in ("galore", "apollo", "badam", "adam_mini", "muon") if getattr(finetuning, f"use_{name}"))
    return next(own, optim)


def _by_name(optim: str, trained: list[Parameter]) -> States:
    count, size = sum(p.count for p in trained), sum(p.bytes for p in trained)
    if optim == "adafactor":
        return _adafactor(trained)
    if optim in _FP32:
        return States(_FP32[optim] * 4 * count, 0, f"{_FP32[optim]} fp32 states x {count:,}", _paged(optim))
    if optim in _INT8:
        number = _INT8[optim]
        total = sum(_int8(p, number) for p in trained)
        text = f"{number} states x (1 + 4/{_BLOCK}) B x {count:,}; embeddings and weights below {_SMALL} values in fp32"
        return States(total, 0, text, _paged(optim))
    number, note = _PLAIN.get(optim, 2), ""
    if optim not in _PLAIN:
        note = f"not modelled: optim {optim}; two states per parameter are assumed"
    # torch.optim.adam._multi_tensor_adam makes `exp_avg_sq_sqrt` for all parameters at once
    step = size if optim == "adamw_torch" else 0
    return States(number * size, step, f"{number} states x {_mean(size, count):g} B x {count:,}", note)


def _mean(size: int, count: int) -> float:
    return round(size / count, 3) if count else 0


def _paged(optim: str) -> str:
    return "paged states may move to RAM when the card is full; they are counted here" if "paged" in optim else ""


def _int8(p: Parameter, number: int) -> int:
    # transformers' Trainer registers `optim_bits: 32` for the weights of embeddings
    if p.count < _SMALL or p.embedding:
        return number * 4 * p.count
    return number * (p.count + 4 * math.ceil(p.count / _BLOCK))


def _adafactor(trained: list[Parameter]) -> States:
    """transformers' `Adafactor`: a row and a column for each matrix, in the gradient's dtype; no first moment."""
    total = 0
    for p in trained:
        numbers = p.count // p.shape[-1] + p.count // p.shape[-2] if len(p.shape) >= 2 else p.count
        total += numbers * p.dtype.itemsize
    largest = max((p.count for p in trained), default=0)
    return States(total, 2 * 4 * largest, "rows + columns of each matrix; the step: 2 x fp32 of the largest weight")


def _muon(trained: list[Parameter]) -> States:
    """LlamaFactory's `third_party/muon`: a momentum for matrices, two moments for embeddings, head and vectors."""
    total = 0
    for p in trained:
        matrix = len(p.shape) == 2 and "embed" not in p.name and "lm_head" not in p.name
        total += p.bytes * (1 if matrix else 2)
    largest = max((p.count for p in trained), default=0)
    # newton-schulz on a bf16 copy: X, A = X @ X.T, B and their product
    return States(total, 4 * 2 * largest, "1 momentum for matrices, 2 moments for the rest")


def _projected(finetuning, trained: list[Parameter]) -> States:
    rank = finetuning.galore_rank if finetuning.use_galore else finetuning.apollo_rank
    total = 0
    for p in trained:
        low, high = (min(p.shape), max(p.shape)) if len(p.shape) == 2 else (0, 0)
        if low > rank and "embed" not in p.name and "lm_head" not in p.name:
            total += (2 * rank * high + rank * low) * p.dtype.itemsize
        else:
            total += 2 * p.bytes
    name = "GaLore" if finetuning.use_galore else "APOLLO"
    text = f"2 moments of rank {rank} x the longer side, and the projection; 2 full moments for the rest"
    return States(total, 0, text, f"{name} is counted for all linear layers, roughly")


def _badam(trained: list[Parameter]) -> States:
    blocks: dict[str, int] = {}
    for p in trained:
        parts = p.name.split(".")
        number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        block = ".".join(parts[: number + 1]) if number is not None else p.name
        blocks[block] = blocks.get(block, 0) + p.count
    largest = max(blocks.values(), default=0)
    text = f"fp32 copy, gradient and 2 moments of one block: 16 B x {largest:,}"
    return States(16 * largest, 0, text, "BAdam trains one block at a time: counted for the largest, roughly")
