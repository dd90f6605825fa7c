"""Training arguments from the files beside a log. `training_args.bin` is a pickle and is never opened.

LlamaFactory leaves the model card `README.md` (written by the Trainer) and `adapter_config.json` in an output_dir;
its web UI `training_args.yaml`; ms-swift `args.json`.
"""

import json
import re
from pathlib import Path

ARGUMENTS = ("training_args.yaml", "args.json", "train_args.json")
CARD, ADAPTER = "README.md", "adapter_config.json"
LARGEST = 1 << 20
_CARD_LINE = re.compile(r"^- (\w+): (.+)$", re.MULTILINE)
_OF_CARD = {
    "learning_rate": "learning_rate",
    "train_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "seed": "seed",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "lr_scheduler_type": "lr_scheduler_type",
    "lr_scheduler_warmup_ratio": "warmup_ratio",
    "lr_scheduler_warmup_steps": "warmup_steps",
    "num_epochs": "num_train_epochs",
    "training_steps": "max_steps",
}
_OF_ADAPTER = {
    "r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target",
}


def beside(folder: Path) -> tuple[dict, str | None]:
    """Settings and the names of the files they come from; empty where there is none.

    A YAML with another name counts where it is the only one that looks like a LlamaFactory config.
    """
    found = [(name, _mapping(folder / name)) for name in ARGUMENTS]
    found = [(name, settings) for name, settings in found if settings][:1] or _configs(folder)
    found = [(CARD, _card(folder / CARD)), (ADAPTER, _adapter(folder / ADAPTER)), *found]
    settings: dict = {}
    for _, part in found:
        settings |= part
    return settings, ", ".join(name for name, part in found if part) or None


def _configs(folder: Path) -> list[tuple[str, dict]]:
    files = sorted(folder.glob("*.y*ml"))[:20]
    found = [
        (file.name, settings) for file in files if (settings := _mapping(file)) and "model_name_or_path" in settings
    ]
    return found if len(found) == 1 else []


def _text(file: Path) -> str:
    try:
        if file.is_file() and file.stat().st_size <= LARGEST:
            return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        pass
    return ""


def _mapping(file: Path) -> dict:
    text = _text(file)
    if not text:
        return {}
    try:
        value = json.loads(text) if file.suffix == ".json" else _yaml(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _yaml(text: str) -> object:
    import yaml  # takes a while to import, and most folders need it not

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _card(file: Path) -> dict:
    """The hyperparameters of a model card that the Trainer has written."""
    section = _text(file).partition("Training hyperparameters")[2].partition("\n##")[0]
    settings = {}
    for name, value in _CARD_LINE.findall(section):
        if name in _OF_CARD:
            try:
                settings[_OF_CARD[name]] = json.loads(value)
            except ValueError:
                settings[_OF_CARD[name]] = value.strip().removeprefix("SchedulerType.").lower()
    return settings


def _adapter(file: Path) -> dict:
    config = _mapping(file)
    if config.get("peft_type") != "LORA":
        return {}
    known = {ours: config[theirs] for theirs, ours in _OF_ADAPTER.items() if config.get(theirs) is not None}
    return {"finetuning_type": "lora", **known}
