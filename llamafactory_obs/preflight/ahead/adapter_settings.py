"""What the weights in a checkpoint are for, by its own files: the method, and of LoRA rank, factor and modules.

PEFT 0.18: a resume loads them into the modules that the config makes. Another rank is an error; modules too many or too
few are skipped or begin anew, and then the optimizer's state does not fit.
"""

from pathlib import Path

from ...checkpoint.files import Incomplete, read_json
from ...checkpoint.headers import base_tensors
from ...identity.model import find_folder
from .effective import Effective

_SAID = {"lora_rank": "r", "lora_alpha": "lora_alpha", "use_rslora": "use_rslora", "use_dora": "use_dora"}
#: linear layers of the language model under their usual names: `lora_target: all` takes them
_LINEAR = frozenset(f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down"))
#: parts of a base model in which `all` may take none of them: frozen towers, fused experts
_OTHERS = ("vis", "audio", "expert", "tower")


def adapter_of(checkpoint: Path, run: Effective) -> dict:
    """`finetuning_type`; of an adapter `lora_rank`, `lora_alpha` ..., `lora_target`, `additional_target`.

    Full tuning and freeze save the same files; then it is the config's own method. Where the config goes on with an
    adapter of its own (`adapter_name_or_path`), LlamaFactory takes the settings from there: nothing else is told.
    """
    method = run.get("finetuning_type")
    try:
        adapter = read_json(checkpoint / "adapter_config.json")
    except Incomplete:
        whole = any(checkpoint.glob("model*.safetensors"))
        return {"finetuning_type": method if method in ("full", "freeze") else "full"} if whole else {}
    if not isinstance(adapter, dict) or adapter.get("peft_type") != "LORA":
        return {"finetuning_type": "oft"}
    said = {"finetuning_type": "lora"}
    if method != "lora" or (run.get("adapter_name_or_path") and not run.get("create_new_adapter")):
        return said
    said |= {key: adapter[name] for key, name in _SAID.items() if name in adapter}
    if run.get("use_unsloth"):  # has its own way with modules
        return said
    targets = adapter.get("target_modules")
    if isinstance(targets, list) and targets and not run.get("use_llama_pro"):
        said |= _targets(targets, run)
    if run.get("additional_target") or not run.get("resize_vocab"):  # without a word `resize_vocab` adds the embedding
        said["additional_target"] = adapter.get("modules_to_save") or []
    return said


def _targets(saved: list[str], run: Effective) -> dict:
    """The saved modules where they are others than the config's, else the config's own word for them."""
    wanted = run.get("lora_target")
    if not isinstance(wanted, list) or any("." in str(one) for one in wanted):
        return {}
    names = {str(one).rpartition(".")[2] for one in saved}  # frozen towers: LlamaFactory writes whole paths
    same = not _linear(run) - names if wanted == ["all"] else set(wanted) == names
    return {"lora_target": wanted if same else sorted(names)}


def _linear(run: Effective) -> set[str]:
    """Those of `_LINEAR` that the base model has; none where it is not on this machine."""
    folder = find_folder(str(run.get("model_name_or_path")), run.get("model_revision"), None, run.get("cache_dir"))
    tensors = base_tensors(folder) if folder is not None else {}
    paths = [name.split(".") for name, one in tensors.items() if name.endswith(".weight") and len(one.shape) == 2]
    return {path[-2] for path in paths if not any(word in part for part in path for word in _OTHERS)} & _LINEAR
