"""How long the record sheet of a long run takes, and how big its page is: 20,000 steps, 40 layers, 200 probes.

    python bench/report_speed.py [--folder DIR] [--steps 20000] [--layers 40] [--probes 200]

Each number is of a new process of the verb itself, as a person calls it: the best of three. On a machine that does
other things too the processor's seconds are the ones to compare.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARTS = {"data_wait": 0.01, "forward": 0.16, "backward": 0.28, "optimizer": 0.06, "callbacks": 0.002, "other": 0.028}
SUITE = "5" * 64


def write_record(folder: Path, steps: int, layers: int, probes: int, resumed_at: int | None = None) -> Path:
    """A record as the callbacks write it, with numbers made up; returns the output folder.

    Args:
        resumed_at: the run was killed 100 steps after this step and went on from it.
    """
    obs = folder / "obs"
    obs.mkdir(parents=True, exist_ok=True)
    begin, seconds = 1.79e9, sum(PARTS.values())
    starts = [(0, 0, (resumed_at + 100) if resumed_at else steps)] + ([(1, resumed_at, steps)] if resumed_at else [])
    events, rows, clock = [], [], begin
    for segment, after, until in starts:
        kind = "resume" if after else "start"
        events.append(event(after, clock, segment, kind, {"max_steps": steps, "callbacks": "", "rows_replayed": 0}))
        for step in range(after + 1, until + 1):
            clock += seconds
            rows.append(row(step, clock, segment, steps))
            if step % 500 == 0:
                low = 1.2 + 0.4 * (step / steps - 0.7) ** 2
                rows.append({"step": step, "time": clock, "segment": segment, "eval/loss": low})
                events.append(event(step, clock, segment, "checkpoint", {"path": f"{folder}/checkpoint-{step}"}))
        clock += 600
    events.append(event(steps, clock - 600, starts[-1][0], "end", {}))
    norms = [{"step": 0, "time": begin, "segment": 0, "names": [f"layers.{i}" for i in range(layers)], "modules": []}]
    norms += [
        {"step": step, "time": begin, "segment": 0, "grad_norm": [1 + math.sin(step + i) / 2 for i in range(layers)]}
        for step in range(10, steps + 1, 10)
    ]
    asked = [probe(at, number) for at in range(max(1, probes // 5)) for number in range(min(5, probes))]
    for name, lines in (("steps", rows), ("events", events), ("layers", norms), ("probes", asked)):
        (obs / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (obs / "run.json").write_text(json.dumps(identity(steps)), encoding="utf-8")
    return folder


def row(step: int, clock: float, segment: int, steps: int) -> dict:
    """One step with the columns of all callbacks."""
    tokens = 8000 + 500 * math.sin(step)
    parts = {f"time/{name}_s": value for name, value in PARTS.items()}
    return {
        "step": step,
        "time": clock,
        "segment": segment,
        "train/loss": 2.2 - 1.4 * step / steps + 0.15 * math.sin(step * 1.7) * math.cos(step * 0.31),
        "train/lr": 1e-4 * 0.5 * (1 + math.cos(math.pi * step / steps)),
        "train/grad_norm": 0.8 + 0.3 * math.cos(step * 1.3),
        "train/clip_coef": 1.0,
        "train/epoch": 3 * step / steps,
        "data/cells": tokens * 1.1,
        "data/tokens": tokens,
        "data/supervised_tokens": tokens * 0.3,
        "data/samples": 16.0,
        "data/truncated": float(step % 50 == 0),
        "data/fully_masked": 0.0,
        "data/max_length": 3000.0 + step % 1000,
        "data/supervised_ratio": 0.3 + 0.02 * math.sin(step),
        "data/padding_ratio": 0.09,
        "data/truncated_ratio": float(step % 50 == 0) / 16,
        "system/allocated_gib": 14.0,
        "system/reserved_gib": 18.0,
        "system/peak_allocated_gib": 16.5,
        "system/peak_reserved_gib": 19.25,
        "system/gpu_util": 0.9 + 0.05 * math.sin(step),
        "system/tokens_per_sec": tokens / sum(PARTS.values()),
        **parts,
        "time/step_s": sum(PARTS.values()),
    }


def event(step: int, clock: float, segment: int, kind: str, evidence: dict) -> dict:
    """One event without much to say."""
    return {"step": step, "time": clock, "segment": segment, "kind": kind, "level": "info", "name": "recorder"} | {
        "title": kind,
        "text": kind,
        "evidence": evidence,
        "action": "none",
        "suggest": {},
    }


def probe(at: int, number: int) -> dict:
    """One answer to one probe: `at` is the checkpoint's place, 0 the base model."""
    passed = (at + number) % 3 > 0
    output = (
        f'<tool_call>{{"name": "query_orders", "arguments": {{"region": "{number}", "month": {at}}}}}</tool_call>' * 4
    )
    return {
        "step": at * 500,
        "time": 1.79e9,
        "segment": 0,
        "checkpoint": f"checkpoint-{at * 500}" if at else "base",
    } | {
        "content": "",
        "probe": f"probe {number}",
        "prompt": f"orders of region {number}?",
        "passed": passed,
        "errors": [] if passed else ["wrong_arguments"],
        "details": [] if passed else ["wrong_arguments: month is 7, expected 8"],
        "output": output,
        "turns": [{"raw": output, "replies": []}],
        "suite": SUITE,
        "suite_name": "golden",
    }


def identity(steps: int) -> dict:
    """A `run.json` with what the sheet reads of it."""
    arguments = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "num_train_epochs": 3.0, "max_steps": -1}
    arguments |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "eval_strategy": "steps"}
    given = {"model_name_or_path": "models/base-7b", "stage": "sft", "finetuning_type": "lora", "dataset": "orders"}
    card = {"name": "NVIDIA A100-SXM4-80GB", "memory_gib": 79.3, "uuid": "GPU-00000000", "compute_capability": "8.0"}
    return {
        "schema_version": 1,
        "llamafactory_obs": "0.1.0",
        "packages": {"main": {"torch": "2.14.1", "transformers": "5.6.0", "llamafactory": "0.9.5", "vllm": "0.32.0"}},
        "data": {"settings": {"template": "qwen3"}, "rows": {"rows": 106667, "tokens": 53333500, "sha256": "a" * 64}},
        "model": {"name_or_path": "models/base-7b", "parameters": {"total": 7_600_000_000, "trainable": 20_000_000}},
        "config": {"given": given, "resolved": {"training_args": arguments, "data_args": {"cutoff_len": 4096}}},
        "hardware": {"cpu": "a processor", "cores_usable": 16, "ram_gib": 128.0, "gpu_count": 1, "gpus": [card]}
        | {"driver": "580.65", "cuda_runtime": "13.0", "python": "3.11.7"},
        "world": {"world_size": 1, "nodes": 1, "per_device_batch": 4, "gradient_accumulation": 4, "global_batch": 16},
        "precision": {"compute": "bf16"},
        "segments": [{"segment": 0, "started": 1.79e9, "process_started": 1.79e9 - 90, "from_step": 0}],
        "unknown": [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=None, help="keep the record here")
    for name, number in (("steps", 20_000), ("layers", 40), ("probes", 200)):
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_record(args.folder or Path(scratch), args.steps, args.layers, args.probes, args.steps // 2)
        page = Path(scratch) / "sheet.html"
        print(f"{args.steps} steps, {args.layers} layers, {args.probes} probes")
        for name, words in (
            ("summarize", ["-c", f"from llamafactory_obs.summary import summarize; summarize({str(folder)!r})"]),
            ("report in the terminal", ["-m", "llamafactory_obs.cli", "report", str(folder)]),
            ("report --html", ["-m", "llamafactory_obs.cli", "report", str(folder), "--html", str(page)]),
            ("report --json", ["-m", "llamafactory_obs.cli", "report", str(folder), "--json"]),
        ):
            wall, processor = map(min, zip(*(timed([sys.executable, *words]) for _ in range(3)), strict=True))
            print(f"{name:<24} {wall:6.2f} s, {processor:.2f} s of them on a processor")
        print(f"{'size of the page':<24} {page.stat().st_size / 2**20:6.2f} MiB")
    return 0


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one call, the interpreter's start included."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, used


if __name__ == "__main__":
    raise SystemExit(main())
