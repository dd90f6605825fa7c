"""Records written by hand, row by row, for the tests of the summary and of the record sheet."""

import json
from pathlib import Path

BEGIN = 1.79e9
MACHINE = {"cpu": "a processor", "cores_usable": 8, "ram_gib": 64.0, "ram_limit_gib": 32.0, "gpu_count": 1}
MACHINE |= {"gpus": [{"name": "NVIDIA L4", "memory_gib": 22.0}], "driver": "580.1", "cuda_runtime": "13.0"}


def identity(**more) -> dict:
    """A `run.json`."""
    arguments = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "num_train_epochs": 2.0, "max_steps": -1}
    arguments |= {"eval_strategy": "steps", "run_name": "first"}
    return {
        "schema_version": 1,
        "llamafactory_obs": "0.1.0",
        "code": {"sha": "0123456789abcdef0123", "dirty": False},
        "packages": {"main": {"torch": "2.0", "transformers": "5.6.0", "llamafactory": "0.9.5", "vllm": None}},
        "data": {"settings": {"template": "qwen3"}, "datasets": [{"name": "orders", "role": "train"}]}
        | {"rows": {"rows": 40, "tokens": 4000, "sha256": "a" * 64}},
        "model": {"name_or_path": "base", "class": "Qwen3ForCausalLM", "parameters": {"total": 1000, "trainable": 10}},
        "config": {
            "given": {"stage": "sft", "callbacks": ["label_mask"]},
            "resolved": {"training_args": arguments, "data_args": {"cutoff_len": 128}, "f": {"stage": "sft"}},
        },
        "hardware": dict(MACHINE),
        "world": {"world_size": 2, "nodes": 1, "per_device_batch": 4, "gradient_accumulation": 3, "global_batch": 24},
        "precision": {"compute": "bf16"},
        "seeds": {"seed": 42},
        "segments": [],
        "unknown": [],
        **more,
    }


class Record:
    """A record that grows: `start`, `step`, `event`, `write`. Times are seconds after `BEGIN`."""

    def __init__(self, folder: Path):
        self.folder, self.segment, self.clock = folder, -1, 0.0
        self.run = identity()
        self.rows, self.events, self.more = [], [], {}

    def start(self, step: int = 0, loading: float | None = None, planned: int = 20) -> None:
        """Training begins now at this step."""
        self.segment += 1
        entry = {"segment": self.segment, "started": BEGIN + self.clock, "from_step": step}
        if loading is not None:
            entry["process_started"] = BEGIN + self.clock - loading
        self.run["segments"].append(entry)
        evidence = {"max_steps": planned, "callbacks": "", "rows_replayed": 0}
        self.event(step, "resume" if step else "start", "training begins", evidence=evidence)

    def steps(self, first: int, last: int, seconds: float = 2.0, **columns) -> None:
        """Steps one after the other; a column may be a function of the step."""
        for step in range(first, last + 1):
            self.clock += seconds
            values = {name: value(step) if callable(value) else value for name, value in columns.items()}
            row = {"step": step, "time": BEGIN + self.clock, "segment": self.segment, "train/loss": 3.0 - step / 10}
            self.rows.append(row | values)

    def event(self, step: int, kind: str, title: str = "", text: str = "", **more) -> None:
        """Something happens now."""
        event = {"step": step, "time": BEGIN + self.clock, "segment": self.segment, "kind": kind, "level": "info"}
        event |= {"name": "recorder", "title": title, "text": text, "evidence": {}, "action": "none", "suggest": {}}
        self.events.append(event | more)

    def evaluation(self, step: int, loss: float) -> None:
        """A row of an evaluation, behind that of its step."""
        at = max(place for place, row in enumerate(self.rows) if row["step"] == step)
        row = {"step": step, "time": self.rows[at]["time"], "segment": self.segment, "eval/loss": loss}
        self.rows.insert(at + 1, row)

    def write(self) -> Path:
        """All files; returns the output folder."""
        obs = self.folder / "obs"
        obs.mkdir(parents=True, exist_ok=True)
        (obs / "run.json").write_text(json.dumps(self.run), encoding="utf-8")
        for name, rows in {"steps": self.rows, "events": self.events, **self.more}.items():
            (obs / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return self.folder


def whole(folder: Path) -> Path:
    """A run of 20 steps that was killed once, with every kind of number and known sums."""
    record = Record(folder)
    columns = {
        "data/cells": 200.0,
        "data/tokens": 150.0,
        "data/supervised_tokens": 45.0,
        "data/samples": 24.0,
        "data/truncated": lambda step: float(step == 3),
        "data/fully_masked": 0.0,
        "data/max_length": lambda step: 90.0 + step,
        "system/peak_reserved_gib": lambda step: 10.0 + step / 10,
        "system/peak_allocated_gib": 9.0,
        "system/gpu_util": lambda step: 0.5 if step <= 10 else 0.9,
        "system/tokens_per_sec": 75.0,
        "time/step_s": 2.0,
        "train/grad_norm": 1.0,
        "train/epoch": lambda step: step / 10,
    }
    record.start(loading=30.0)
    record.steps(1, 12, **columns | {"system/peak_reserved_gib": lambda step: 15.5 if step > 8 else 10.0})
    record.evaluation(5, 2.0)
    record.clock += 100
    record.start(8, loading=20.0)
    record.steps(9, 20, **columns)
    for step, loss in ((10, 1.5), (15, 1.8), (20, 2.2)):
        record.evaluation(step, loss)
    record.event(20, "end", "training ended")
    return record.write()
