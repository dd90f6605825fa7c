"""What of a run config decides its memory, with LlamaFactory's own defaults and rules."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ..run_config import Arguments, RunConfig

#: stages whose batches hold two rows for each row of `per_device_train_batch_size` (chosen and rejected; target and KL)
PAIRED = ("dpo", "rm", "kto")
#: keys that change the memory and are not modelled: the estimate is that of the run without them
NOT_MODELLED = {
    "use_unsloth": "unsloth's own kernels and its offloading",
    "use_unsloth_gc": "checkpoints kept in RAM (the estimate keeps them on the card)",
    "shift_attn": "shifted sparse attention",
    "mixture_of_depths": "mixture of depths",
    "use_kt": "KTransformers",
    "use_v1_kernels": "the v1 kernels",
    "fp8": "fp8 training",
    "torch_compile": "torch.compile (it fuses operators, and stores less or more)",
    "use_asft_loss": "the reference logits of the ASFT loss",
    "use_eaft_loss": "the extra terms of the EAFT loss",
    "pissa_init": "the decomposition at the start",
}


@dataclass(frozen=True)
class Setup:
    """The keys that count.

    Attributes:
        precision: `bf16` | `fp16` (autocast) | `none`.
        bits: of `quantization_bit`; None for weights as they are stored.
        optim: transformers' name of the optimizer.
        batch: rows of one micro-batch on one card.
        eval_batch: rows of an evaluation batch; 0 where nothing is evaluated.
        accumulation: micro-batches per optimizer step.
        length: tokens of a row after cutoff and padding.
        world: cards; what is sharded is divided by it.
        shard: `none` | `zero1` | `zero2` | `zero3` | `fsdp` (full shard) | `fsdp_grad_op`.
        offload_optimizer, offload_parameters: held in RAM by DeepSpeed or FSDP.
    """

    stage: str
    method: str
    precision: str
    pure_bf16: bool
    bits: int | None
    double_quantization: bool
    quantization_type: str
    optim: str
    batch: int
    eval_batch: int
    accumulation: int
    length: int
    packing: bool
    checkpointing: bool
    attention: str
    liger: bool
    world: int
    shard: str
    offload_optimizer: bool
    offload_parameters: bool
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows that go through the model at once."""
        return self.batch * (2 if self.stage in PAIRED else 1)


def read_setup(config: RunConfig, arguments: Arguments, longest_tokens: int | None) -> Setup:
    """The keys of this config; those that `parsed` leaves out are read as they stand.

    Raises:
        ConfigError: a value that LlamaFactory would refuse too, or a stage that is not modelled.
    """
    given, training, data = config.given, arguments.training, arguments.data
    stage = arguments.finetuning.stage
    if stage == "ppo":
        raise ConfigError("the memory of stage ppo (policy, value, reward and reference model) is not modelled")
    notes = [f"not modelled: {text} ({key})" for key, text in NOT_MODELLED.items() if given.get(key)]
    shard, offload_optimizer, offload_parameters = _sharding(config, given)
    length, packing = _length(arguments, longest_tokens, notes)
    world = _world()
    if shard != "none" and world == 1:
        notes.append(f"{shard} on one card: set WORLD_SIZE (or NPROC_PER_NODE) to see the share of one of several")
    evaluated = bool(data.eval_dataset or data.val_size > 1e-6)
    evaluated = evaluated and (_flag(given, "do_eval") or str(given.get("eval_strategy", "no")) != "no")
    return Setup(
        stage=stage,
        method=arguments.finetuning.finetuning_type,
        precision="bf16" if _flag(given, "bf16") else "fp16" if _flag(given, "fp16") else "none",
        pure_bf16=_flag(given, "pure_bf16"),
        bits=_bits(given),
        double_quantization=_flag(given, "double_quantization", True),
        quantization_type=str(given.get("quantization_type") or "nf4"),
        optim=str(getattr(training.optim, "value", training.optim) if not given.get("optim") else given["optim"]),
        batch=training.per_device_train_batch_size,
        eval_batch=training.per_device_eval_batch_size * (2 if stage in PAIRED else 1) if evaluated else 0,
        accumulation=training.gradient_accumulation_steps,
        length=length,
        packing=packing,
        checkpointing=not arguments.model.disable_gradient_checkpointing,
        attention=str(getattr(arguments.model.flash_attn, "value", arguments.model.flash_attn)),
        liger=_flag(given, "enable_liger_kernel"),
        world=world,
        shard=shard,
        offload_optimizer=offload_optimizer,
        offload_parameters=offload_parameters,
        notes=tuple(notes),
    )


def _length(arguments: Arguments, longest: int | None, notes: list[str]) -> tuple[int, bool]:
    data, stage = arguments.data, arguments.finetuning.stage
    packing = bool(data.packing or data.neat_packing)
    length = data.cutoff_len
    if longest is not None and longest < 1:
        raise ConfigError(f"the longest row must have at least 1 token, got {longest}")
    if packing and longest is not None:
        notes.append("packing fills every row up to cutoff_len: the longest row does not matter")
    elif longest is not None:
        length = min(length, longest)
    if stage != "pt":  # LlamaFactory's collators: pad_to_multiple_of=8
        length = -(-length // 8) * 8
    return length, packing


def _bits(given: dict) -> int | None:
    bits = given.get("quantization_bit")
    if bits is None:
        return None
    method = str(given.get("quantization_method") or "bnb").lower()
    known = {"bnb": (4, 8), "bitsandbytes": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,)}
    if method not in known or bits not in known[method]:
        raise ConfigError(f"quantization_bit: {bits!r} with quantization_method: {method} is not known to LlamaFactory")
    return int(bits)


def _world() -> int:
    """Processes as torchrun or LlamaFactory's launcher would start them, by their environment variables; else 1."""
    try:
        if "WORLD_SIZE" in os.environ:
            return max(1, int(os.environ["WORLD_SIZE"]))
        return max(1, int(os.environ.get("NPROC_PER_NODE", "1")) * int(os.environ.get("NNODES", "1")))
    except ValueError:
        raise ConfigError("WORLD_SIZE, NPROC_PER_NODE and NNODES must be whole numbers") from None


def _sharding(config: RunConfig, given: dict) -> tuple[str, bool, bool]:
    if given.get("deepspeed"):
        zero = _deepspeed(given["deepspeed"]).get("zero_optimization") or {}
        stage = zero.get("stage", 0)
        if stage not in (0, 1, 2, 3):
            raise ConfigError(f"{config.path}: deepspeed: zero_optimization.stage must be 0 to 3, got {stage!r}")
        held = [(zero.get(f"offload_{what}") or {}).get("device", "none") for what in ("optimizer", "param")]
        return f"zero{stage}" if stage else "none", held[0] not in ("none", None), held[1] not in ("none", None)
    words = given.get("fsdp") or ""
    words = words if isinstance(words, list) else str(words).split()
    offload = "offload" in words
    if "shard_grad_op" in words or "hybrid_shard_zero2" in words:
        return "fsdp_grad_op", offload, offload
    if words and words != ["no_shard"]:
        return "fsdp", offload, offload
    return "none", False, False


def _deepspeed(value: object) -> dict:
    if isinstance(value, dict):
        return value
    try:
        found = json.loads(Path(str(value)).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"deepspeed: {value} is no readable JSON file; paths count from the current folder") from None
    if not isinstance(found, dict):
        raise ConfigError(f"deepspeed: {value} must hold one mapping")
    return found


def _flag(given: dict, key: str, default: bool = False) -> bool:
    value = given.get(key, default)
    return value.lower() in ("true", "1", "yes", "y", "on") if isinstance(value, str) else bool(value)
