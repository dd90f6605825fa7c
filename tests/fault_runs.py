"""Real LlamaFactory runs of a small model that learns, with one fault each, and their healthy twins."""

import json
import random
import shutil
from pathlib import Path

from tiny import WORDS, tiny_config, tiny_model

OWN = Path(__file__).parent / "fault_callbacks.py"

#: as a user would write it
CALLBACKS = [
    "grad_norm_spike",
    "layer_norms",
    "label_mask",
    "vram",
    "throughput",
    "system",
    "samples",
    "optimizer",
    "quality",
    "diagnose",
]

ROWS, BATCH, STEPS = 640, 4, 160
RATE = 2e-3
RESUME_AT = 100
SHIFTED_AT = 110
#: rows of ten times the length stand at these places of the data, which is not shuffled
LONG_ROWS = range(400, 412)
LEARNING = {
    "max_steps": STEPS,
    "save_steps": RESUME_AT,
    "per_device_train_batch_size": BATCH,
    "learning_rate": RATE,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 12,
    "cutoff_len": 1024,
    "disable_shuffling": True,
    "disable_gradient_checkpointing": True,
}


def make_model(folder: Path) -> Path:
    """A random Qwen3 of about 1M parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tiny_model(folder)
    config = Qwen3Config.from_pretrained(folder)
    config.hidden_size, config.intermediate_size, config.head_dim = 128, 384, 32
    config.max_position_embeddings = 2048
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def make_data(folder: Path, long: bool = False) -> Path:
    """`ROWS` questions whose answers repeat their words; with `long` those of `LONG_ROWS` are ten times as long."""
    draw, rows = random.Random(0), []
    for i in range(ROWS):
        asked = [draw.choice(WORDS) for _ in range(draw.randint(2, 6))]
        answer = " ".join([*asked, draw.choice(WORDS), "and", *reversed(asked)])
        if long and i in LONG_ROWS:  # about 50 tokens each, with the template's
            answer = " ".join(draw.choice(WORDS) for _ in range(360))
        rows.append({"instruction": f"say {' '.join(asked)} twice", "input": "", "output": answer})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}), encoding="utf-8")
    return folder


def train(model: Path, data: Path, out: Path, more: tuple = (), **overrides) -> Path:
    """One run in this process, with the callbacks of `CALLBACKS`, then `more`."""
    from llamafactory.train.tuner import run_exp

    run_exp(tiny_config(model, data, out, callbacks=[*CALLBACKS, *more], **{**LEARNING, **overrides}))
    return out


def own(name: str, **args) -> dict:
    """An entry of `callbacks:` for a class of `fault_callbacks.py`."""
    return {"name": f"{OWN}:{name}", "args": args}


def planted(name: str, **args) -> dict:
    """An entry of `callbacks:` for a fault of the drills, `module.Class`."""
    return {"name": f"llamafactory_obs.drill.incident.faults.{name}", "args": args}


def resumable(run: Path, folder: Path, without: tuple[str, ...] = ()) -> Path:
    """A copy of a run as it was at its checkpoint, without some of the checkpoint's files."""
    shutil.copytree(run, folder)
    checkpoint = folder / f"checkpoint-{RESUME_AT}"
    for newer in folder.glob("checkpoint-*"):
        if newer != checkpoint:
            shutil.rmtree(newer)
    for name in without:
        (checkpoint / name).unlink()
    return folder
