"""Finished smoke runs of the tiny model by the real LlamaFactory, and copies of them to damage."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import yaml
from tiny import tiny_config

from llamafactory_obs.checkpoint.base_model import Base
from llamafactory_obs.checkpoint.load_worker import main
from llamafactory_obs.checkpoint.loading import Loaded
from llamafactory_obs.preflight.run_config import RunConfig, read_run_config
from llamafactory_obs.preflight.smoke.evidence import Evidence, read_evidence
from llamafactory_obs.record.schema import FOLDER, decode, encode

CALLBACKS = ["label_mask", {"layer_norms": {"weights_every": 1}}, "vram"]
LORA = {"finetuning_type": "lora", "lora_target": "all", "lora_rank": 4}


class Smoke:
    """A smoke run: its folder and the config file it was made from."""

    def __init__(self, folder: Path, config: Path):
        self.folder, self.file = folder, config

    def config(self, **overrides) -> RunConfig:
        """Its config; a None override takes the key out."""
        given = yaml.safe_load(self.file.read_text()) | overrides
        path = self.file.with_name("changed.yaml")
        path.write_text(yaml.safe_dump({key: value for key, value in given.items() if value is not None}))
        return read_run_config(path)

    def evidence(self, **overrides) -> Evidence:
        return read_evidence(self.config(**overrides), self.folder, 10)

    def checkpoint(self) -> Path:
        return self.folder / "checkpoint-10"

    def copy(self, into: Path) -> "Smoke":
        """A copy with its times kept."""
        into.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.folder, into / "run")
        shutil.copy(self.file, into / "run.yaml")
        return Smoke(into / "run", into / "run.yaml")

    def edit(self, name: str, change) -> None:
        """Change each row of one file of the record by `change(row)`."""
        file = self.folder / FOLDER / name
        rows = [decode(line) for line in file.read_bytes().splitlines()]
        for row in rows:
            change(row)
        file.write_bytes(b"".join(map(encode, rows)))

    def event(self, **fields) -> None:
        """One more event."""
        with open(self.folder / FOLDER / "events.jsonl", "ab") as file:
            file.write(encode({"step": 4, "time": 0.0, "segment": 0, "level": "error", "text": "", **fields}))

    def identity(self, *path: str, value: object) -> None:
        """Change one value of `run.json`."""
        file = self.folder / FOLDER / "run.json"
        whole = json.loads(file.read_text())
        node = whole
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = value
        file.write_text(json.dumps(whole))


def load_here(folder: Path, kind: str, base: Base, device: str) -> Loaded:
    """`try_to_load` in this process: quicker than one of its own."""
    return Loaded(**main({"folder": str(folder), "kind": kind, "base": asdict(base), "device": "cpu"}))


def make(model: Path, data: Path, folder: Path, **overrides) -> Smoke:
    """Train 10 steps in this process."""
    from llamafactory.train.tuner import run_exp

    folder.mkdir(parents=True)
    steps = {"max_steps": 10, "save_steps": 10, "callbacks": CALLBACKS}
    given = tiny_config(model, data, folder / "run", **(steps | overrides))
    (folder / "run.yaml").write_text(yaml.safe_dump(given))
    run_exp(dict(given))
    return Smoke(folder / "run", folder / "run.yaml")


def oom(smoke: Smoke) -> None:
    """What the `vram` callback and the recorder write on a GPU that is full."""
    evidence = {
        "micro_batches": [[4, 2048]],
        "longest_sequence": 2048,
        "system/allocated_gib": 21.5,
        "system/reserved_gib": 22.75,
        "system/device_used_gib": 23.9,
        "card_gib": 24.0,
        "processes_on_card": [{"pid": 4242, "name": "VLLM::EngineCore", "used": 7 << 30, "used_gib": 7.0}],
    }
    smoke.event(kind="oom", name="vram", title="out of memory", action="kill", evidence=evidence)
    smoke.event(kind="crash", name="recorder", title="training ends: crash", text="CUDA out of memory", evidence={})


def on_gpu(smoke: Smoke, peak: float = 18.0, beside: float | None = 2.0) -> None:
    """Give each step the keys that the `vram` callback writes on a GPU."""

    def change(row):
        row.pop("system/rss_gib", None)
        step = row["step"]
        row["system/reserved_gib"] = peak - 1
        row["system/peak_reserved_gib"] = peak - 1 if step < 7 else peak
        if beside is not None:
            row["system/device_used_gib"] = peak - 1 + (beside if step == 5 else 0.5)

    smoke.edit("steps.jsonl", change)
