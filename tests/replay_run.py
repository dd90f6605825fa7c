"""Real runs with an audit log for the tests of `replay`, with bad rows or with labels shifted in one step."""

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from tiny import tiny_config, tiny_data

from llamafactory_obs.callbacks.base import ObsCallback
from llamafactory_obs.replay import replay as module
from llamafactory_obs.replay.report import Report

#: two rows of one batch, at step 48 of a run in the order of the data: 4 rows a step
BAD_ROWS, BAD_STEP = (4 * 47 + 1, 4 * 47 + 2), 48
SHIFTED_STEP = 48
CLEAN_STEP = 53
LEARNING = {
    "max_steps": 56,
    "save_steps": 20,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "learning_rate": 5e-3,
}


@dataclass(eq=False)
class ShiftLabels(ObsCallback):
    """The fault: in one step every label stands one position too late."""

    yaml_name: ClassVar[str] = "shift_labels"

    at: int = SHIFTED_STEP

    def batch(self, inputs) -> None:
        if self.run.trainer.state.global_step == self.at - 1:
            labels = inputs["labels"]
            shifted = torch.full_like(labels, -100)
            shifted[:, 1:] = labels[:, :-1]
            if inputs["attention_mask"].dim() == 2:
                shifted[inputs["attention_mask"] == 0] = -100
            labels.copy_(shifted)


def shift(at: int = SHIFTED_STEP) -> dict:
    return {"replay_run.ShiftLabels": {"at": at}}


def make_data(folder: Path, bad: tuple[int, ...] = (), count: int = 240) -> Path:
    """`count` rows whose answers can be learned; those of `bad` are noise."""
    tiny_data(folder, count)
    draw, file = random.Random(0), folder / "rows.json"
    rows = json.loads(file.read_text())
    for row in bad:
        rows[row]["output"] = "".join(draw.choice("qxzjkvw#%&") for _ in range(25))
    file.write_text(json.dumps(rows))
    return folder


def train_run(model: Path, data: Path, out: Path, callbacks: list, **overrides) -> Path:
    from llamafactory.train.tuner import run_exp

    run_exp(tiny_config(model, data, out, callbacks=callbacks, **{**LEARNING, **overrides}))
    return out


def copy_run(run: Path, folder: Path) -> Path:
    """A run of its own, to be damaged."""
    shutil.copytree(run, folder)
    return folder


def replay(run: Path, step: int, **more) -> Report:
    return module.replay(run, step, say=lambda line: None, **more)


def log_rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "obs" / "samples.jsonl").read_text().splitlines()]


def write_log(run: Path, rows: list[dict], rank: int = 0) -> None:
    name = f"samples.rank-{rank}.jsonl" if rank else "samples.jsonl"
    (run / "obs" / name).write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def samples_of(rows: list[dict], step: int) -> list[dict]:
    """The logged samples of a step, to be changed in place."""
    return [sample for row in rows if row["step"] == step for batch in row["micro_batches"] for sample in batch]
