"""The estimate of `llamafactory-obs memory` beside what real runs hold, tensor by tensor.

    python bench/memory_estimate.py [--model DIR] [--lengths 64 128] [--template default] [--json]

Each config is trained for two steps by LlamaFactory on the CPU, on one row that fills `cutoff_len` and a short one.
Measured: storages of parameters, gradients and optimizer states; storages that autograd saved in the forward pass; the
highest level of the CPU allocator in forward and backward (torch's profiler, so buffers inside kernels count too).
What a GPU adds, the CUDA context and the allocator's gaps, is not seen here. Without `--model` it is a random Qwen3 of
6 layers, made for the occasion.
"""

import argparse
import contextlib
import json
import os
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
    parser.add_argument("--model", help="a model folder with weights; default: a tiny one")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64])
    parser.add_argument("--template", default="default")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32", help="bf16 is slow on many CPUs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ |= {"LLAMAFACTORY_VERBOSITY": "ERROR", "HF_HUB_OFFLINE": "1"}
    sys.path.insert(0, str(ROOT / "tests"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or tiny(Path(folder) / "model")
        for name, keys in CONFIGS.items():
            for length in args.lengths:
                place = Path(folder) / f"{name}-{length}"
                place.mkdir()
                keys = keys | {"template": args.template, "bf16": args.precision == "bf16"}
                with contextlib.redirect_stdout(sys.stderr):  # LlamaFactory and the Trainer print
                    found = one(place, model, length, keys)
                rows.append({"config": name, "length": length} | found)
                if not args.json:
                    show(rows[-1], head=len(rows) == 1)
    if args.json:
        print(json.dumps(rows, indent=2))
    return 0


def tiny(folder: Path) -> Path:
    """A random Qwen3 of 6 layers with a tokenizer."""
    from tiny import tiny_model

    return tiny_model(folder, layers=6)


def one(folder: Path, model: str | Path, length: int, keys: dict) -> dict:
    """`{"what": [estimate, measured]}` in bytes."""
    from memory_run import measured_config, train_measured

    from llamafactory_obs.preflight.memory.estimate import GIB, estimate
    from llamafactory_obs.preflight.run_config import read_run_config

    given = measured_config(folder, model, length, **keys)
    found = train_measured(given)
    path = folder / "run.json"
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
    """A block of lines: estimate and measured in MiB, and how far off."""
    if head:
        print(f"{'':18}{'estimate':>12}{'measured':>12}{'off':>9}   (MiB)")
    print(f"{row['config']}, {row['length']} tokens")
    for name in ("weights", "gradients", "optimizer", "saved", "peak"):
        made, found = row[name]
        print(f"  {name:16}{made / MIB:12.3f}{found / MIB:12.3f}{made / found - 1:+9.2%}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
