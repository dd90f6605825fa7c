"""What vLLM would refuse about a LoRA adapter, told from its `adapter_config.json` before the server is asked.

Rules of vLLM 0.32 (`vllm/lora/peft_helper.py`, `vllm/config/lora.py`).
"""

import json
from pathlib import Path

from ...checkpoint.files import Incomplete, read_header
from . import Refused

#: the values that vLLM 0.32 takes for --max-lora-rank
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
#: modules_to_save that vLLM can serve
_SERVED = {"classifier", "score"}
#: initialisations whose base model is no longer the one that is served
_OTHER_BASE = ("pissa", "olora", "corda", "loftq")
_ELSEWHERE = "use --backend local, or merge the adapter and serve the merged model"


def read_config(folder: Path) -> dict:
    """The adapter's config; raises Refused where it cannot be read."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"adapter_config.json cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise Refused("adapter_config.json is no mapping")
    return config


def check_tensors(folder: Path) -> None:
    """Raise Refused for an adapter file without any LoRA tensor: it loads without a word and is the base model."""
    names = adapter_header(folder)
    if names is not None and not any(".lora_" in name for name in names):
        cure = "the save is broken: sharded weights were not gathered, or LoRA is attached to nothing"
        raise Refused(f"adapter_model.safetensors holds {len(names)} tensors and none of LoRA", cure)


def adapter_header(folder: Path) -> dict | None:
    """Tensor name -> entry of the adapter's safetensors header; None where it has no such file (a `.bin`)."""
    try:
        _, header = read_header(folder / "adapter_model.safetensors")
    except (OSError, Incomplete):
        return None
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def needed_rank(config: dict) -> int:
    """The largest rank of any module."""
    ranks = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    if not all(isinstance(rank, int) for rank in ranks):
        raise Refused(f"adapter_config.json names no rank (r: {config.get('r')!r})")
    return max(ranks)


def needed_limit(rank: int) -> int | None:
    """The smallest --max-lora-rank that holds a rank; None where vLLM has none that large."""
    return next((limit for limit in RANKS if limit >= rank), None)


def check(config: dict) -> None:
    """Raise Refused for what no vLLM server can load, whatever its flags."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise Refused(f"vLLM loads LoRA adapters only, this one is {kind}", _ELSEWHERE)
    rank = needed_rank(config)
    if needed_limit(rank) is None:
        raise Refused(f"its rank {rank} is above vLLM's largest --max-lora-rank {RANKS[-1]}", _ELSEWHERE)
    if config.get("use_dora"):
        raise Refused("vLLM does not load DoRA (`use_dora: true`)", f"train without it, or {_ELSEWHERE}")
    saved = sorted(set(config.get("modules_to_save") or []) - _SERVED)
    if saved:
        cause = "; `resize_vocab: true` or `additional_target` adds them" if "embed_tokens" in saved else ""
        raise Refused(f"vLLM does not load modules_to_save {saved}{cause}", _ELSEWHERE)
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        raise Refused("vLLM does not load an adapter with biases", _ELSEWHERE)
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_OTHER_BASE):
        cure = f"convert it to plain LoRA first (LlamaFactory: `pissa_convert: true`), or {_ELSEWHERE}"
        raise Refused(f"it was initialised by {start}: it belongs to a changed base model", cure)
    for option in ("layer_replication", "use_qalora", "alora_invocation_tokens"):
        if config.get(option):
            raise Refused(f"vLLM does not load an adapter with {option}", _ELSEWHERE)


def changes_nothing(folder: Path) -> bool:
    """Is every `lora_B` of the adapter zero? Then it is the base model. False where that cannot be told."""
    file = folder / "adapter_model.safetensors"
    try:
        first, header = read_header(file)
        spans = [entry["data_offsets"] for name, entry in header.items() if ".lora_B." in name]
        with open(file, "rb") as handle:
            for start, end in spans:
                handle.seek(first + start)
                data = handle.read(end - start)
                if data.count(0) != len(data):
                    return False
    except (OSError, Incomplete):
        return False
    return bool(spans)
