"""The activations of a dense decoder by hand: what the forward pass keeps per token and layer, term by term.

An explanation and a check of the traced count, written from transformers' `modeling_llama.py`, `modeling_qwen3.py`,
PEFT's `tuners/lora/layer.py` and the rules of autocast. It covers decoder layers with RMSNorm, rotary attention
(fused: SDPA or flash) and a gated MLP, trained in full or with LoRA on all linear layers, under bf16 or fp16 autocast.
"""

from dataclasses import dataclass

from .parameters import Built
from .setup import Setup


@dataclass(frozen=True)
class Shape:
    """Sizes of one layer: hidden, query and key/value width, MLP width, heads; `head_norms` as in Qwen3."""

    hidden: int
    query: int
    key_value: int
    mlp: int
    heads: int
    layers: int
    vocabulary: int
    head_norms: bool


def shape_of(built: Built) -> Shape | None:
    """The sizes, or None where the layers are not of this kind."""
    text, plain = built.text, {part for p in built.parameters for part in p.name.split(".")}
    wanted = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    if not wanted <= plain or "experts" in plain:
        return None
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    groups = getattr(text, "num_key_value_heads", None) or heads
    return Shape(
        hidden=text.hidden_size,
        query=heads * width,
        key_value=groups * width,
        mlp=text.intermediate_size,
        heads=heads,
        layers=text.num_hidden_layers,
        vocabulary=built.model.get_input_embeddings().weight.shape[0],
        head_norms="q_norm" in plain,
    )


def layer_bytes(shape: Shape, *, full: bool, masked: bool = True) -> dict[str, float]:
    """Bytes per token that one layer keeps for the backward pass, by part.

    Args:
        full: fp32 weights that are all trained (the residual stream is fp32 then); else a frozen 16-bit base with LoRA
            on all linear layers (the residual stream is 16 bit).
        masked: a padded batch: SDPA then gets keys and values repeated for every query head.
    """
    h, q, kv, m = shape.hidden, shape.query, shape.key_value, shape.mlp
    # RMSNorm keeps its input in fp32 and, where its weight is trained, the normalised input
    norms = 2 * (4 * h + (4 * h if full else 0))
    # autocast makes a 16-bit copy of the input for each of q, k, v and gate, up (LoRA: for each lora_A)
    inputs = 5 * 2 * h
    head_norms = (4 + (2 if full else 0)) * (q + kv) if shape.head_norms else 0
    repeated = q if masked else kv
    attention = 2 * q + 2 * 2 * repeated + 2 * q + 4 * shape.heads  # q, k, v, output, log-sum-exp
    output = 2 * q  # the input of o_proj
    mlp = 2 * m * 4  # gate, silu(gate), up, input of down_proj
    return {
        "norms": norms,
        "inputs": inputs,
        "head norms": head_norms,
        "attention": attention + output,
        "mlp": mlp,
    }


def stored_bytes(shape: Shape, setup: Setup, *, full: bool) -> tuple[float, str]:
    """What is kept at the end of the forward pass over all layers, and the formula in words."""
    tokens, masked = setup.rows * setup.length, setup.attention != "fa2"
    item = 4 if full else 2
    if setup.checkpointing:
        each, words = shape.hidden * item, f"{shape.hidden} x {item} B"
    else:
        each = sum(layer_bytes(shape, full=full, masked=masked).values())
        words = f"{each:,.0f} B"
    # the last norm keeps its input in fp32; in full training the normalised input and the head's 16-bit input too
    last = shape.hidden * (10 if full else 4)
    # SDPA makes a 16-bit mask of the batch's boolean one, in each layer
    mask = setup.rows * setup.length**2 * (1 + (0 if setup.checkpointing else 2 * shape.layers)) if masked else 0
    total = tokens * (shape.layers * each + last) + mask
    return total, f"{tokens:,} tokens x ({shape.layers} layers x {words} + {last:,} B) + mask {mask:,} B"
