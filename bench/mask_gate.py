"""What the mask gate costs: its time over a data set against LlamaFactory's own preprocessing of it.

    python bench/mask_gate.py --model MODEL --dataset-dir DIR --dataset NAME[,NAME] [--template NAME] [--workers N]

Both read the files anew, load the tokenizer and encode every row, in turns and in one process, nothing cached. The gate
also reads the model's config, compares the templates and judges; rows to look at are not made ready. Without arguments
it runs on a random tiny model and conversations made here. Wall seconds swing on a shared machine, so CPU seconds (of
workers too) stand beside them, and of each the least of all turns is compared. Exit code 1 where both ratios are above
the limit.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "ERROR")

LIMIT = 1.15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--dataset-dir", type=Path)
    parser.add_argument("--dataset", default="rows")
    parser.add_argument("--template", default="qwen3_nothink")
    parser.add_argument("--cutoff", type=int, default=2048)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(sys.stderr):
        result = measure(args, Path(scratch))
    print(json.dumps(result) if args.json else text(result))
    return 0 if min(result["wall_ratio"], result["cpu_ratio"]) <= args.limit else 1


def measure(args, scratch: Path) -> dict:
    """Seconds of both, `times` pairs after one that warms up."""
    import datasets
    import yaml

    from llamafactory_obs.preflight.mask.gate import mask_gate
    from llamafactory_obs.preflight.run_config import read_run_config

    datasets.disable_caching()
    if args.model is None or args.dataset_dir is None:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from tiny import tiny_data, tiny_model

        args.model = args.model or str(tiny_model(scratch / "model"))
        args.dataset_dir = args.dataset_dir or tiny_data(scratch / "data", 5000)
    given = {
        "model_name_or_path": args.model,
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": args.dataset,
        "dataset_dir": str(args.dataset_dir),
        "template": args.template,
        "cutoff_len": args.cutoff,
        "preprocessing_num_workers": args.workers,
        "output_dir": str(scratch / "out"),
    }
    path = scratch / "run.yaml"
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    theirs, ours = [], []
    for turn in range(args.times + 1):
        with tempfile.TemporaryDirectory(dir=scratch) as cache:
            start = clocks()
            preprocess(given | {"overwrite_cache": True}, cache)
            middle = clocks()
        report = mask_gate(read_run_config(path), show=0)
        end = clocks()
        if turn:
            theirs.append([b - a for a, b in zip(start, middle, strict=True)])
            ours.append([b - a for a, b in zip(middle, end, strict=True)])
    least = [[min(column) for column in zip(*times, strict=True)] for times in (theirs, ours)]
    return {
        "rows": report.splits[0]["rows"],
        "tokens": report.splits[0]["tokens"],
        "llamafactory": dict(zip(("wall_s", "cpu_s"), least[0], strict=True)),
        "gate": dict(zip(("wall_s", "cpu_s"), least[1], strict=True)),
        "wall_ratio": least[1][0] / least[0][0],
        "cpu_ratio": least[1][1] / least[0][1],
        "limit": args.limit,
    }


def clocks() -> tuple[float, float]:
    """Wall seconds; CPU seconds of this process and of its workers that have ended, garbage collected."""
    gc.collect()
    return time.perf_counter(), sum(os.times()[:4])


def preprocess(given: dict, cache: str) -> None:
    """LlamaFactory as it stands, its files read into an empty cache."""
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer, loader
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    model_args, data_args, training_args, _, _ = get_train_args(given)
    module = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(module["tokenizer"], data_args)
    load = loader.load_dataset
    loader.load_dataset = lambda *args, **kwargs: load(*args, **{**kwargs, "cache_dir": cache})
    try:
        get_dataset(template, model_args, data_args, training_args, "sft", **module)
    finally:
        loader.load_dataset = load


def text(result: dict) -> str:
    theirs, ours = result["llamafactory"], result["gate"]
    return (
        f"{result['rows']} rows, {result['tokens']} tokens (limit {result['limit']:g})\n"
        f"  wall: LlamaFactory {theirs['wall_s']:.2f} s, the gate {ours['wall_s']:.2f} s: {result['wall_ratio']:.3f}\n"
        f"  CPU:  LlamaFactory {theirs['cpu_s']:.2f} s, the gate {ours['cpu_s']:.2f} s: {result['cpu_ratio']:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
