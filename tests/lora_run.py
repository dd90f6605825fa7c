"""A short LoRA run with the real LlamaFactory, and more checkpoints that are derived from it."""

import json
import shutil
from pathlib import Path

from conftest import ROOT

from llamafactory_obs.probe.complete import prove
from llamafactory_obs.probe.copies import Taken, take
from llamafactory_obs.record.schema import FOLDER

WEIGHTS = "adapter_model.safetensors"


def train_lora(model: Path, out: Path) -> Path:
    """Four steps on the demo's data, each saved, in this process."""
    from llamafactory.train.tuner import run_exp

    config = {
        "model_name_or_path": str(model),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "all",
        "dataset": "orders",
        "dataset_dir": str(ROOT / "demo" / "data"),
        "max_samples": 8,
        "template": "smollm2",
        "cutoff_len": 600,
        "output_dir": str(out),
        "logging_steps": 1,
        "save_steps": 1,
        "max_steps": 4,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "disable_gradient_checkpointing": True,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 42,
        "callbacks": ["grad_norm_spike"],
    }
    run_exp(config)
    return out


def place(run: Path, folder: Path, record: bool = True) -> Path:
    """An output folder without checkpoints: what is known of the run, and (`record`) that it has ended."""
    (folder / FOLDER).mkdir(parents=True)
    for file in (run / FOLDER).glob("*.json*" if record else "run.json"):
        shutil.copy(file, folder / FOLDER)
    return folder


def derive(run: Path, out: Path, step: int, scale: float, rank: int | None = None, **config) -> Path:
    """Another checkpoint: the run's last one with `lora_B` scaled, saved in transformers' order and with its modes.

    Args:
        rank: padded with zeros to this rank: the same model.
        config: changes to `adapter_config.json`.
    """
    from safetensors.torch import load_file, save_file
    from torch.nn.functional import pad

    source, target = run / "checkpoint-4", out / f"checkpoint-{step}"
    target.mkdir()
    tensors, settings = load_file(source / WEIGHTS), json.loads((source / "adapter_config.json").read_text()) | config
    more = (rank or settings["r"]) - settings["r"]
    for name, tensor in tensors.items():
        is_b = ".lora_B." in name
        tensor = tensor.abs() if not scale else tensor  # no -0.0
        tensors[name] = pad(tensor * scale if is_b else tensor, (0, more) if is_b else (0, 0, 0, more)).contiguous()
    if more:
        settings |= {"r": rank, "lora_alpha": settings["lora_alpha"] * rank / settings["r"]}
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    (target / "adapter_config.json").write_text(json.dumps(settings))
    for name in ("chat_template.jinja", "tokenizer_config.json", "tokenizer.json"):
        shutil.copy(source / name, target)
    state = json.loads((source / "trainer_state.json").read_text()) | {"global_step": step}
    (target / "trainer_state.json").write_text(json.dumps(state))
    return target


def taken_of(folder: Path, into: Path) -> Taken:
    """The private copy of a checkpoint."""
    proof = prove(folder, int(folder.name.split("-")[1]))
    assert proof.complete, proof.why
    return take(folder, proof, into, hard_links=False)
