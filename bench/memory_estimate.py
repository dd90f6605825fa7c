"""The estimate of `llamafactory-obs memory` beside what real runs hold, tensor by tensor.

    python bench/memory_estimate.py MODEL_DIR [--lengths 128 512] [--template default] [--json]

Each config is trained for two steps by LlamaFactory on the CPU, on rows that fill `cutoff_len`. Measured: storages of
parameters, gradients and optimizer states; storages that autograd saved in the forward pass; the highest level of the
CPU allocator in forward and backward (torch's profiler, so buffers inside kernels count too). What a GPU adds, the
CUDA context and the allocator's gaps, is not seen here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
CONFIGS = {
    "full": {"finetuning_type": "full"},
    "full, stored": {"finetuning_type": "full", "disable_gradient_checkpointing": True},
    "lora": {"finetuning_type": "lora"},
    "lora, stored": {"finetuning_type": "lora", "disable_gradient_checkpointing": True},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--template", default="default")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(json.loads(args.one))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, keys in CONFIGS.items():
            for length in args.lengths:
                rows.append({"config": name, "length": length} | apart(config(args, folder, keys, length)))
                if not args.json:
                    show(rows[-1], head=len(rows) == 1)
    if args.json:
        print(json.dumps(rows, indent=2))
    return 0


def config(args, folder: str, keys: dict, length: int) -> dict:
    """A run of two steps on rows longer than `length`."""
    data = Path(folder) / "rows.json"
    data.write_text(json.dumps([{"instruction": "go on", "input": "", "output": "one two three " * length}] * 8))
    (Path(folder) / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
    given = {"model_name_or_path": args.model, "template": args.template, "stage": "sft", "do_train": True}
    given |= {"dataset": "rows", "dataset_dir": folder, "cutoff_len": length, "output_dir": f"{folder}/out"}
    given |= {"per_device_train_batch_size": 2, "max_steps": 2, "logging_steps": 1, "save_strategy": "no"}
    given |= {"overwrite_output_dir": True, "report_to": "none", "bf16": True, "use_cpu": True, "disable_tqdm": True}
    return given | keys


def apart(given: dict) -> dict:
    """Measure in a process of its own: nothing of the run before is left."""
    words = [sys.executable, __file__, given["model_name_or_path"], "--one", json.dumps(given)]
    environment = os.environ | {"LLAMAFACTORY_VERBOSITY": "ERROR", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def one(given: dict) -> dict:
    """`{"what": [estimate, measured]}` in bytes."""
    sys.path.insert(0, str(ROOT / "tests"))
    from memory_run import train_measured

    from llamafactory_obs.preflight.memory.estimate import GIB, estimate
    from llamafactory_obs.preflight.run_config import read_run_config

    found = train_measured(given)
    path = Path(given["output_dir"]).parent / "run.json"
    path.write_text(json.dumps(given))
    made = estimate(read_run_config(path))
    held = {line.name: round(line.gib * GIB) for line in made.lines}
    numbers = made.line("activations").numbers
    return {
        "weights": [held.get("weights, frozen", 0) + held.get("weights, trained", 0), found.weights],
        "gradients": [held["gradients"], found.gradients],
        "optimizer": [held["optimizer states"], found.states],
        "saved": [numbers["stored_bytes"], found.saved],
        "peak": [numbers["peak_bytes"], found.peak],
    }


def show(row: dict, head: bool) -> None:
    """One line: estimate / measured in MiB, and how far off."""
    names = ("weights", "gradients", "optimizer", "saved", "peak")
    if head:
        print(f"{'MiB, estimate / measured':26}" + "".join(f"{name:>25}" for name in names))
    cells = [f"{a / MIB:9.1f} /{b / MIB:7.1f} {a / b - 1:+6.1%}" for a, b in (row[name] for name in names)]
    print(f"{row['config']:15}{row['length']:5} tokens" + "".join(f"{cell:>25}" for cell in cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
