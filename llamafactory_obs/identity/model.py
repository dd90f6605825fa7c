"""The model before training: where its weights came from and what they hash to, its tokenizer, its size in memory."""

import os
import re
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path

from .files import hash_files, sha256_file, sha256_json, sha256_text
from .redact import redact
from .unknown import Unknowns, unknown

WEIGHTS = re.compile(r".*\.safetensors|pytorch_model.*\.bin|adapter_model\.bin|.*\.gguf")
TOKENIZER_FILES = re.compile(
    r"tokenizer.*\.json|tokenizer\.model.*|vocab\.(json|txt)|merges\.txt|special_tokens_map\.json|added_tokens\.json"
    r"|chat_template\.(jinja|json)|.*\.tiktoken|spiece\.model|sentencepiece.*\.model|tokenization_.*\.py"
)
COMMIT = re.compile(r"[0-9a-f]{40}")


def model_identity(model: object, tokenizer: object, args: object, unknown_: Unknowns) -> tuple[dict, list]:
    """What is known at once, and the jobs for the rest.

    Args:
        model: the model or None; only its config and the shapes of its parameters are read.
        tokenizer: a tokenizer or processor, or None; not changed.
        args: LlamaFactory's model arguments, or None.

    Returns:
        `(fields, jobs)`: fields `{"name_or_path", "revision", "class", "config_sha256", "attn_implementation",
        "quantization", "parameters", "adapters", "tokenizer", "weights": None, "adapter_weights": None}`; jobs are
        `(dotted field, callable)` for the last two.
    """
    config = getattr(model, "config", None)
    name = getattr(args, "model_name_or_path", None) or getattr(config, "_name_or_path", None) or None
    commit = getattr(config, "_commit_hash", None)
    cache = getattr(args, "cache_dir", None)
    folder = unknown_.guard(
        "model.weights", lambda: find_folder(name, getattr(args, "model_revision", None), commit, cache)
    )
    revision = commit or (folder.name if folder and COMMIT.fullmatch(folder.name) else None)
    fields: dict = {
        "name_or_path": redact(name),
        "revision": revision,
        "class": type(_base(model)).__name__ if model is not None else None,
        "config_sha256": None,
        "attn_implementation": getattr(config, "_attn_implementation", None),
        "attn_requested": redact(getattr(args, "flash_attn", None)),
        "quantization": unknown_.guard("model.quantization", lambda: quantization(config, args)),
        "parameters": unknown_.guard("model.parameters", lambda: count_parameters(model))
        if model is not None
        else None,
        "peft": unknown_.guard("model.peft", lambda: _peft(model)),
        "adapters": _listed(getattr(args, "adapter_name_or_path", None)),
        "weights": None,
        "adapter_weights": None,
    }
    fields["tokenizer"] = unknown_.guard(
        "model.tokenizer", lambda: tokenizer_identity(tokenizer, folder, unknown_, cache)
    )
    _explain(fields, model, revision, unknown_)
    jobs: list[tuple[str, Callable[[], object]]] = []
    if folder is None:
        unknown_.add("model.weights", f"{_kind(name)}: no folder with its weights was found here")
    else:
        if (folder / "config.json").is_file():
            fields["config_sha256"] = unknown_.guard("model.config_sha256", lambda: sha256_file(folder / "config.json"))
        else:
            unknown_.add("model.config_sha256", "the model's folder holds no config.json")
        jobs.append(("model.weights", lambda: weights_sha256(folder)))
    if fields["adapters"]:
        jobs.append(("model.adapter_weights", lambda: {one: _adapter(one, cache) for one in fields["adapters"]}))
    return fields, jobs


def find_folder(name: str | None, revision: str | None, commit: str | None, cache: str | None = None) -> Path | None:
    """The folder that holds a model: a local one, or its snapshot in the hub cache (nothing is downloaded).

    Args:
        name: path or hub name. revision: branch, tag or commit; None for `main`. commit: known from the config.
        cache: LlamaFactory's `cache_dir`; None for HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
    """
    if not name:
        return None
    if Path(name).is_dir():
        return Path(name)
    if not re.fullmatch(r"[\w.\-]+(/[\w.\-]+)?", name):
        return None
    repository = _hub_cache(cache) / f"models--{name.replace('/', '--')}"
    wanted = commit or (revision if revision and COMMIT.fullmatch(revision) else None)
    if wanted is None:
        reference = repository / "refs" / (revision or "main")
        wanted = reference.read_text(encoding="ascii").strip() if reference.is_file() else None
    folder = repository / "snapshots" / (wanted or "")
    return folder if wanted and folder.is_dir() else None


def weights_sha256(folder: Path) -> dict:
    """`{"sha256", "files"}` of a folder's weight files, see `hash_files`; `{"unknown": why}` where there are none."""
    try:
        names = [one.name for one in folder.iterdir() if WEIGHTS.fullmatch(one.name)]
        return hash_files(folder, names) if names else unknown("the folder holds no weight file of a known kind")
    except OSError as error:
        return unknown(f"a weight file cannot be read: {error.strerror}")


def count_parameters(model: object) -> dict:
    """`{"total", "trainable", "dtypes": {dtype: count}}` of the whole model, over all ranks; tied weights count once.

    A DTensor's `numel` is the global one; DeepSpeed ZeRO-3 keeps it in `ds_numel`, a 4-bit weight its shape in
    `quant_state`. Raises ValueError for FSDP1, which shows each rank its own shard only.
    """
    total = trainable = 0
    dtypes: dict[str, int] = {}
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise ValueError("FSDP1 shows each rank its own shard only")
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        count = getattr(parameter, "ds_numel", None)
        if count is None:
            count = prod(state.shape) if state is not None and hasattr(state, "shape") else parameter.numel()
        total += count
        trainable += count if parameter.requires_grad else 0
        dtype = str(parameter.dtype).removeprefix("torch.")
        dtypes[dtype] = dtypes.get(dtype, 0) + count
    return {"total": total, "trainable": trainable, "dtypes": dict(sorted(dtypes.items()))}


def quantization(config: object, args: object) -> dict | None:
    """What the config or the LlamaFactory arguments say of quantised weights; None for none."""
    from_config = getattr(config, "quantization_config", None)
    bits = getattr(args, "quantization_bit", None)
    if from_config is None and bits is None:
        return None
    method = getattr(args, "quantization_method", None) if bits is not None else None
    return redact({"bits": bits, "method": method, "config": from_config})


def tokenizer_identity(
    tokenizer: object, model_folder: Path | None, unknown_: Unknowns, cache: str | None = None
) -> dict | None:
    """`{"class", "size", "special_tokens", "padding_side", "chat_template_sha256", "files_sha256", "files"}`.

    The chat template is the one in use: LlamaFactory may have put its own there.
    """
    if tokenizer is None:
        unknown_.add("model.tokenizer", "no tokenizer was given")
        return None
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor holds one
    template = getattr(tokenizer, "chat_template", None)
    place = find_folder(getattr(tokenizer, "name_or_path", None), None, None, cache) or model_folder
    result = {
        "class": type(tokenizer).__name__,
        "size": unknown_.guard("model.tokenizer.size", lambda: len(tokenizer)),
        "special_tokens": {k: str(v) for k, v in (getattr(tokenizer, "special_tokens_map", None) or {}).items()},
        "padding_side": getattr(tokenizer, "padding_side", None),
        "chat_template_sha256": sha256_text(template) if isinstance(template, str) else None,
        "files_sha256": None,
        "files": {},
    }
    if template is not None and not isinstance(template, str):
        result["chat_template_sha256"] = unknown_.guard(
            "model.tokenizer.chat_template_sha256", lambda: sha256_json(template)
        )
    if place is None:
        unknown_.add("model.tokenizer.files", "no folder with the tokenizer's files was found here")
        return result
    names = [one.name for one in place.iterdir() if TOKENIZER_FILES.fullmatch(one.name) and one.is_file()]
    hashed = unknown_.guard("model.tokenizer.files", lambda: hash_files(place, names)) if names else None
    if hashed is None:
        unknown_.add("model.tokenizer.files", "the folder holds no tokenizer file of a known kind")
        return result
    result["files_sha256"] = hashed["sha256"]
    result["files"] = {row["file"]: row["sha256"] for row in hashed["files"]}
    return result


def _explain(fields: dict, model: object, revision: str | None, unknown_: Unknowns) -> None:
    """Name what the fields could not say."""
    if fields["name_or_path"] is None:
        unknown_.add("model.name_or_path", "neither the arguments nor the model's config name it")
    elif revision is None:
        unknown_.add(
            "model.revision",
            "a local folder has no revision"
            if os.path.isdir(fields["name_or_path"])
            else "the hub's commit is not in the config and not in the cache",
        )
    if model is None:
        unknown_.add("model.parameters", "no model was given")
    if fields["attn_implementation"] is None:
        unknown_.add("model.attn_implementation", "no model was given" if model is None else "its config does not say")


def _kind(name: str | None) -> str:
    return "a model without a name" if not name else "the model"


def _base(model: object) -> object:
    """The model under DDP and PEFT wrappers."""
    model = getattr(model, "module", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def _peft(model: object) -> dict | None:
    config = getattr(model, "peft_config", None)
    return redact(config) if isinstance(config, dict) and config else None


def _adapter(path: str, cache: str | None) -> dict:
    folder = find_folder(path, None, None, cache)
    return weights_sha256(folder) if folder is not None else unknown("the adapter's folder was not found here")


def _hub_cache(cache: str | None) -> Path:
    if cache:
        return Path(cache)
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None and getattr(constants, "HF_HUB_CACHE", None):
        return Path(constants.HF_HUB_CACHE)
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()


def _listed(value: object) -> list[str]:
    if not value:
        return []
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else [str(one) for one in value]
