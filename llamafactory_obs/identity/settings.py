"""Seeds, precision, the layout of the processes, and whether the same start would give the same numbers."""

import json
import os
import sys
from pathlib import Path

from .redact import redact
from .unknown import Unknowns


def _get(obj: object, name: str, default: object = None) -> object:
    """An attribute, or the default where it is missing or its property raises."""
    try:
        return getattr(obj, name, default)
    except Exception:
        return default


def seeds(args: object) -> dict:
    """`{"seed", "data_seed", "data_seed_used", "full_determinism", "python_hash_seed"}`.

    `data_seed_used` is what the sampler gets: `data_seed`, else `seed` (transformers' TrainingArguments).
    """
    seed, data_seed = _get(args, "seed"), _get(args, "data_seed")
    return {
        "seed": seed,
        "data_seed": data_seed,
        "data_seed_used": seed if data_seed is None else data_seed,
        "full_determinism": _get(args, "full_determinism"),
        "python_hash_seed": os.environ.get("PYTHONHASHSEED"),
    }


def precision(args: object, model_args: object, finetuning_args: object, unknown: Unknowns) -> dict:
    """`{"compute", "tf32", "pure_bf16", "fp8", "quantization_bit", "matmul"}`.

    `compute` is `bf16 | fp16 | pure_bf16 | fp32` by the arguments; `tf32` is what torch's CUDA matrix products really
    use (`torch.backends.cuda.matmul.allow_tf32`), None and named in `unknown` before torch is imported.
    """
    pure = bool(_get(finetuning_args, "pure_bf16"))
    compute = "pure_bf16" if pure else "bf16" if _get(args, "bf16") else "fp16" if _get(args, "fp16") else "fp32"
    torch = sys.modules.get("torch")
    tf32 = matmul = None
    if torch is None:
        unknown.add("precision.tf32", "torch is not imported")
    else:
        matmul = unknown.guard("precision.matmul", torch.get_float32_matmul_precision)
        tf32 = unknown.guard("precision.tf32", lambda: bool(torch.backends.cuda.matmul.allow_tf32))
    return {
        "compute": compute,
        "tf32": tf32,
        "matmul": matmul,
        "pure_bf16": pure,
        "fp8": bool(_get(args, "fp8") or _get(model_args, "fp8")),
        "quantization_bit": _get(model_args, "quantization_bit"),
    }


def world(args: object, unknown: Unknowns) -> dict:
    """How many processes train together and how they were started.

    Returns:
        `{"world_size", "local_world_size", "nodes", "launcher": "plain|torchrun|ray", "engine": "single|data_parallel|
        ddp|fsdp|deepspeed", "deepspeed", "fsdp", "per_device_batch", "gradient_accumulation", "global_batch"}`;
        `global_batch` counts the sequences of one optimizer step, over all processes.
    """
    size = _number(_get(args, "world_size")) or _number(os.environ.get("WORLD_SIZE"))
    if size is None:
        unknown.add("world.world_size", "neither the training arguments nor WORLD_SIZE say it")
    local = _number(os.environ.get("LOCAL_WORLD_SIZE")) or (1 if size == 1 else None)
    if local is None:
        unknown.add("world.local_world_size", "LOCAL_WORLD_SIZE is not set")
    deepspeed = unknown.guard("world.deepspeed", lambda: _deepspeed(args))
    fsdp = [str(_get(option, "value", option)) for option in _listed(_get(args, "fsdp"))]
    replicas = _number(_get(args, "n_gpu")) or 1
    batch = _number(_get(args, "per_device_train_batch_size"))
    accumulate = _number(_get(args, "gradient_accumulation_steps"))
    known = None not in (size, batch, accumulate)
    return {
        "world_size": size,
        "local_world_size": local,
        "nodes": size // local if size and local else None,
        "launcher": _launcher(args),
        "engine": _engine(size, bool(_get(args, "deepspeed")), fsdp, replicas),
        "deepspeed": deepspeed,
        "fsdp": {"options": fsdp, "config": redact(_get(args, "fsdp_config"))} if fsdp else None,
        "per_device_batch": batch,
        "gradient_accumulation": accumulate,
        "global_batch": batch * accumulate * size * replicas if known else None,
    }


def determinism(args: object, model: object, size: int | None) -> dict:
    """Whether the settings promise that the same start gives bit-equal numbers on the same machine.

    Returns:
        `{"deterministic": "yes|no|unknown", "reasons": [...], "environment": {...}}`. Dropout does not count: it
        follows the seed. "no" does not mean that two runs must differ, only that nothing promises that they agree.
    """
    names = ["CUBLAS_WORKSPACE_CONFIG", "FLASH_ATTENTION_DETERMINISTIC", "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO"]
    environment = {name: os.environ[name] for name in names if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is None:
        return {"deterministic": "unknown", "reasons": ["torch is not imported"], "environment": environment}
    against: list[str] = []
    doubts: list[str] = []
    notes: list[str] = []
    try:
        cuda = bool(torch.cuda.is_available())
        if not torch.are_deterministic_algorithms_enabled():
            off = "full_determinism is off" if not _get(args, "full_determinism") else "full_determinism had no effect"
            against.append(f"torch.use_deterministic_algorithms is off ({off}): kernels may add in any order")
        elif torch.is_deterministic_algorithms_warn_only_enabled():
            against.append("torch.use_deterministic_algorithms only warns")
        if cuda and torch.backends.cudnn.benchmark:
            against.append("cudnn.benchmark picks kernels by their speed on the day")
        if cuda and torch.backends.cuda.matmul.allow_tf32:
            notes.append("TF32 is on: repeatable on one kind of card, different on another")
    except Exception as error:
        cuda = False
        doubts.append(f"torch does not answer: {type(error).__name__}")
    attention = _get(_get(model, "config"), "_attn_implementation")
    if "flash" in str(attention) and os.environ.get("FLASH_ATTENTION_DETERMINISTIC") != "1":
        against.append(f"{attention} without FLASH_ATTENTION_DETERMINISTIC=1 adds in any order in the backward pass")
    if cuda and (size or 1) > 1:
        doubts.append("the order of sums in NCCL's all-reduce is not covered by torch's switch")
    if any(name in sys.modules for name in ("deepspeed", "unsloth", "liger_kernel")):
        doubts.append("kernels of deepspeed, unsloth or liger are not covered by torch's switch")
    if size is None:
        doubts.append("the number of processes is unknown")
    verdict = "no" if against else "unknown" if doubts else "yes"
    if not against:
        notes.append("at most on the same hardware, versions and number of processes")
    return {"deterministic": verdict, "reasons": against + doubts + notes, "environment": environment}


def _launcher(args: object) -> str:
    """`ray | torchrun | plain`, by what each leaves behind; accelerate's launcher is torchrun underneath."""
    ray = sys.modules.get("ray")
    if _get(args, "use_ray") or (ray is not None and bool(_get(ray, "is_initialized", bool)())):
        return "ray"
    return "torchrun" if "TORCHELASTIC_RUN_ID" in os.environ or "LOCAL_RANK" in os.environ else "plain"


def _engine(size: int | None, deepspeed: bool, fsdp: list[str], replicas: int) -> str | None:
    if deepspeed:
        return "deepspeed"
    if fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"):
        return "fsdp"
    if size is None:
        return None
    return "ddp" if size > 1 else "data_parallel" if replicas > 1 else "single"


def _deepspeed(args: object) -> dict | None:
    """The DeepSpeed configuration itself: a path alone says nothing of what it held."""
    given = _get(args, "deepspeed")
    if not given:
        return None
    config = _get(_get(args, "hf_deepspeed_config"), "config")
    if config is None:
        config = given if isinstance(given, dict) else json.loads(Path(str(given)).read_text(encoding="utf-8"))
    return {"zero_stage": (config.get("zero_optimization") or {}).get("stage", 0), "config": redact(config)}


def _listed(value: object) -> list:
    if value is None or isinstance(value, bool):
        return ["full_shard"] if value else []
    return value.split() if isinstance(value, str) else list(value)


def _number(value: object) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
