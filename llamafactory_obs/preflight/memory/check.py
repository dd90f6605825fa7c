"""Independent counts beside the numbers that the estimate uses."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..run_config import quiet
from .formula import Shape, shape_of, stored_bytes
from .live import ACTIVATIONS
from .parameters import Built
from .setup import Setup
from .trace import Traced

#: tokens of the row that the floating-point operations are counted on
_ROW = 64


def checked(built: Built, setup: Setup, traced: Traced | None):
    """Yield `{"what", "formula", "by_formula", "counted", "off"}`, where off is formula / counted - 1.

    Only decoders that `formula.py` covers are checked: bytes kept for the backward pass (traced), and floating-point
    operations of a forward pass (`torch.utils.flop_counter` on the meta device), which tells wrong shapes.
    """
    shape = shape_of(built)
    if shape is None:
        return
    plain = setup.method in ("full", "lora") and setup.precision != "none" and setup.attention != "disabled"
    if traced is not None and plain and not setup.liger and setup.stage in ("pt", "sft"):
        size, words = stored_bytes(shape, setup, full=setup.method == "full")
        yield _row("bytes kept for backward", words, size, traced.stored[ACTIVATIONS])
    counted = _flops(built)
    if counted:
        matrices, words = _matrices(built, shape)
        yield _row("operations of a forward pass", words, matrices, counted)


def _row(what: str, formula: str, by_formula: float, counted: int) -> dict:
    off = by_formula / counted - 1
    return {"what": what, "formula": formula, "by_formula": round(by_formula), "counted": counted, "off": off}


def _matrices(built: Built, shape: Shape) -> tuple[float, str]:
    """2 operations per matrix weight and token, and attention: 2 products of tokens x tokens per query width."""
    count = sum(p.count for p in built.parameters if len(p.shape) == 2 and not p.embedding)
    head = built.model.get_output_embeddings()
    if head is not None and head.weight is built.model.get_input_embeddings().weight:
        count += head.weight.numel()  # the tied matrix is used as the head
    total = 2 * count * _ROW + 4 * _ROW * _ROW * shape.query * shape.layers
    return total, f"2 x {count:,} weights x {_ROW} tokens + attention"


def _flops(built: Built) -> int | None:
    """None where the model cannot run on the meta device."""
    ids = torch.zeros(1, _ROW, dtype=torch.long, device="meta")
    mask = torch.ones(1, 1, _ROW, _ROW, dtype=torch.bool, device="meta")  # a ready one: nobody looks at its values
    try:
        with quiet(), torch.no_grad(), FlopCounterMode(display=False) as counter:
            built.model(input_ids=ids, attention_mask=mask, use_cache=False)
    except Exception:  # code that depends on values: there are none on the meta device
        return None
    return counter.get_total_flops()
