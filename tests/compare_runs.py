"""Records made by hand for the tests of `compare`: one training's identity, curves with a change at a known step."""

import copy
import math
import random
from pathlib import Path

from page_folder import layers, record

RUN = {
    "schema_version": 1,
    "code": {"sha": "a" * 40, "branch": "main", "dirty": False, "modified": 0, "diff_sha256": None},
    "packages": {
        "list": ["torch==2.14.1", "transformers==5.6.0", "tqdm==4.70"],
        "sha256": "p" * 64,
        "main": {"torch": "2.14.1"},
        "sources": {},
    },
    "data": {
        "settings": {"template": "qwen3", "cutoff_len": 1024, "packing": False},
        "datasets": [{"name": "orders", "role": "train"}, {"name": "held", "role": "eval"}],
        "template_sha256": "t" * 64,
        "files": {"orders": {"sha256": "f" * 64}, "held": {"sha256": "h" * 64}},
        "rows": {"sha256": "r" * 64, "rows": 640, "tokens": 90000},
    },
    "model": {
        "name_or_path": "/models/small",
        "attn_implementation": "sdpa",
        "weights": {"sha256": "w" * 64},
        "parameters": {"total": 1000, "trainable": 10},
        "peft": None,
    },
    "config": {"given": {"stage": "sft"}, "resolved": {}},
    "seeds": {"seed": 1, "data_seed": None, "data_seed_used": 1, "full_determinism": False},
    "precision": {"compute": "bf16", "tf32": False},
    "hardware": {"cpu": "x", "gpu_count": 1, "gpus": [{"name": "H200"}], "driver": "570"},
    "world": {
        "world_size": 1,
        "engine": "single",
        "per_device_batch": 4,
        "gradient_accumulation": 1,
        "global_batch": 4,
    },
    "determinism": {"deterministic": "no", "reasons": ["full_determinism is off"]},
    "unknown": [],
}
SETTINGS = {
    "stage": "sft",
    "finetuning_type": "lora",
    "learning_rate": 1e-4,
    "lora_rank": 16,
    "lr_scheduler_type": "cosine",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "seed": 1,
    "output_dir": "/out/a",
    "report_to": "none",
    "logging_steps": 1,
    "eval_steps": 20,
    "master_port": 29500,
    "template": "qwen3",
    "val_size": 0.0,
    "dataset": "orders",
    "eval_dataset": "held",
}


def identity(settings: dict | None = None, **changes) -> dict:
    """`run.json`; `changes` are dotted keys with `__` for the dot: `world__world_size=2`."""
    run = copy.deepcopy(RUN)
    run["config"]["resolved"] = {"training_args": SETTINGS | (settings or {})}
    for key, value in changes.items():
        node = run
        *parents, last = key.split("__")
        for name in parents:
            node = node[name]
        node[last] = value
    return run


def losses(steps: int, seed: int = 0, noise: float = 0.06, start: float = 2.0, end: float = 1.0) -> list[float]:
    """A healthy curve: an exponential fall with noise of its own."""
    draw = random.Random(seed)
    return [(end + (start - end) * math.exp(-6 * i / steps)) * math.exp(draw.gauss(0, noise)) for i in range(steps)]


def rows(curve: list[float], evaluations: dict[int, float] | None = None, **more) -> list[dict]:
    """Rows of `steps.jsonl`, one for each loss."""
    made = []
    for step, loss in enumerate(curve, 1):
        row = {"step": step, "time": 1.7e9 + step, "segment": 0, "train/loss": loss, "train/lr": 1e-4}
        row |= {"train/grad_norm": 1.0 + 0.1 * math.sin(step), "data/tokens": 1000.0, "time/step_s": 1.0}
        row |= {"data/supervised_tokens": 300.0, "data/cells": 1100.0, "data/samples": 4.0, **more}
        if evaluations and step in evaluations:
            row["eval/loss"] = evaluations[step]
        made.append(row)
    return made


def run(
    folder: Path, curve: list[float], settings: dict | None = None, evaluations=None, changes=None, **files
) -> Path:
    """A whole record."""
    made = {"steps": rows(curve, evaluations), "run": identity(settings, **(changes or {})), **files}
    return record(folder, **made)


def layer_rows(steps: int, factor: dict[str, float] | None = None, seed: int = 0) -> list[dict]:
    """`layers.jsonl` with six layers; `factor` multiplies some of them."""
    draw, names = random.Random(seed), [f"layers.{i}" for i in range(6)]
    factor = factor or {}
    norms = {name: factor.get(name, 1.0) for name in names}
    return layers(list(range(1, steps + 1)), names, lambda step, layer: norms[names[layer]] * draw.uniform(0.9, 1.1))
