"""What the weights of a config hold, kind by kind."""

import math
from dataclasses import dataclass

from .parameters import Built, Parameter
from .setup import Setup

#: bitsandbytes: values per block of a 4-bit weight, and constants per block where those are quantised again
#: (`functional.quantize_4bit(blocksize=64)`, its `nested` constants use blocksize 256)
BLOCK, NESTED_BLOCK = 64, 256


@dataclass(frozen=True)
class Held:
    """One kind of weights: `bytes` for `count` parameters, `text` the bytes per parameter in words."""

    bytes: int
    count: int
    text: str


def frozen_quantised(built: Built, setup: Setup) -> Held | None:
    """The frozen weights that are stored in few bits, constants included; None where none are."""
    found = [p for p in built.parameters if p.quantised]
    if not found or not setup.bits:
        return None
    text = _per_parameter(setup)
    return Held(sum(quantised_bytes(p, setup) for p in found), sum(p.count for p in found), text)


def quantised_bytes(parameter: Parameter, setup: Setup) -> int:
    """Bytes of one quantised weight.

    4 bit (bitsandbytes): two values per byte; one fp32 constant per 64 values, or, with double quantisation, one byte
    per 64 values, one fp32 per 256 of those, a table of 256 fp32 and a mean; a table of 16 fp32 per weight.
    8 bit: one byte per value, one fp32 per row. Other widths (HQQ): `bits / 8` and two 16-bit constants per 64 values.
    """
    values = parameter.count
    if setup.bits == 8:
        return values + 4 * parameter.shape[0]
    if setup.bits != 4:
        return math.ceil(values * setup.bits / 8) + 4 * math.ceil(values / BLOCK)
    blocks = math.ceil(values / BLOCK)
    tables = 16 * 4
    if setup.double_quantization:
        return math.ceil(values / 2) + blocks + 4 * math.ceil(blocks / NESTED_BLOCK) + 256 * 4 + 4 + tables
    return math.ceil(values / 2) + 4 * blocks + tables


def _per_parameter(setup: Setup) -> str:
    if setup.bits == 8:
        return "1 B + 4 B per row"
    if setup.bits != 4:
        return f"{setup.bits}/8 B + 4/64 B of constants"
    return "(1/2 + 1/64 + 4/(64 x 256)) B" if setup.double_quantization else "(1/2 + 4/64) B"


def plain(parameters: list[Parameter], itemsize: int | None = None) -> Held:
    """Weights that are not quantised, in their own dtypes or all with `itemsize` bytes."""
    sizes: dict[str, list[int]] = {}
    for p in parameters:
        word = {4: "fp32", 2: "16 bit", 1: "8 bit"}[itemsize] if itemsize else short(p.dtype)
        size = itemsize or p.dtype.itemsize
        entry = sizes.setdefault(word, [size, 0])
        entry[1] += p.count
    text = " + ".join(f"{count:,} x {size} B ({word})" for word, (size, count) in sizes.items())
    return Held(sum(size * count for size, count in sizes.values()), sum(p.count for p in parameters), text)


def short(dtype) -> str:
    """`bf16`, `fp16`, `fp32`."""
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(str(dtype).split(".")[-1], str(dtype))
