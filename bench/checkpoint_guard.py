"""What `checkpoint_guard` costs: its time on the training thread against that of saving, and how fast it reads back.

    python bench/checkpoint_guard.py --tuning lora --saves 8        # and --tuning full
    python bench/checkpoint_guard.py --kills 100                    # kill -9 while saving and deleting

One real Trainer that makes a step and saves, so often. `save` is the time of the Trainer's own saving; `held up` is
how long the callback keeps the training thread then. Beside the training are `look` (headers, sizes, JSON) and `read
back` (hash, every tensor, the optimizer's state). The goal is `held up` under 2 % of `save`. `--model` is a folder with
HF weights; without it SmolLM2-135M-Instruct is fetched into ./build/smollm2.

With `--kills` a tiny real LlamaFactory run is killed at random moments (tests/killed_saves.py) and each time a good
checkpoint must remain, not older than the one before; the exit code is 1 where that is not so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def measure(model_folder: Path, tuning: str, saves: int, folder: Path) -> None:
    """Train, save, print the table."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    from llamafactory_obs import CheckpointGuard
    from llamafactory_obs.callbacks.context import RunContext
    from llamafactory_obs.callbacks.recorder import Recorder
    from llamafactory_obs.record.checkpoints import read_checkpoints

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    if tuning == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = list(range(3, 19))
    rows = Dataset.from_list([{"input_ids": ids, "labels": ids}] * (saves + 1))
    args = TrainingArguments(
        output_dir=str(folder),
        max_steps=saves,
        save_steps=1,
        save_total_limit=2,
        per_device_train_batch_size=1,
        report_to="none",
        disable_tqdm=True,
        logging_steps=1000,
        use_cpu=not torch.cuda.is_available(),
    )
    recorder = Recorder(RunContext())
    spent: list[float] = []

    class Timed(CheckpointGuard):
        """Takes the time of `saved`, all but the last: then training is over."""

        def saved(self, folder: str, last: bool) -> None:
            start = time.perf_counter()
            super().saved(folder, last)
            if not last:
                spent.append(time.perf_counter() - start)

    recorder.register(Timed())
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    Trainer(model, args, train_dataset=rows, processing_class=tokenizer, callbacks=[recorder]).train()

    found = read_checkpoints(folder)
    quick = [json.loads(line) for line in (folder / "obs" / "checkpoints.jsonl").read_text().splitlines()]
    quick = [row for row in quick if row["check"] == "quick"][1:]  # the first one warms up imports and caches
    read = [row for row in found if row["check"] == "full"]
    save = statistics.median(row["save_s"] for row in quick)
    look = statistics.median(row["check_s"] for row in quick)
    own = statistics.median(spent[1:])
    size = found[-1]["bytes"]
    print(f"{tuning}: {size / 1e6:.0f} MB, {found[-1]['files']} files, {len(found)} saves, all good: ", end="")
    print(all(row["good"] for row in found))
    print(f"  save       {save:8.3f} s")
    print(f"  held up    {own:8.4f} s   {own / save:.2%} of saving: on the training thread")
    print(f"  look       {look:8.4f} s   beside the training")
    if read:
        seconds = statistics.median(row["check_s"] for row in read)
        print(f"  read back  {seconds:8.2f} s   {size / seconds / 1e6:.0f} MB/s, beside the training")


def kill(kills: int, seed: int) -> int:
    """Kill and look; returns the exit code."""
    bad = fell = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "tests" / "killed_saves.py"), folder, str(kills), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            for line in filter(lambda line: line.startswith('{"kill"'), child.stdout):
                one = json.loads(line)
                lost = bool(one["before"]) and (not one["good"] or one["good"][-1] < one["before"][-1])
                halves = [name for name in one["left"] if name.startswith(".") or int(name[11:]) not in one["good"]]
                bad, fell = bad + lost, fell + bool(halves)
                print(f"kill {one['kill']:3}  good {one['good']}  cut off {halves}{'  LOST' if lost else ''}")
    print(f"{kills} kills, {fell} left something half done, {bad} lost a good checkpoint")
    return 1 if bad or child.returncode else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tuning", choices=("lora", "full"), default="lora")
    parser.add_argument("--saves", type=int, default=8)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.kills:
        sys.exit(kill(options.kills, options.seed))
    if options.model is None:
        from smollm2 import smollm2

        options.model = smollm2(ROOT / "build" / "smollm2")
    with tempfile.TemporaryDirectory() as scratch:
        measure(options.model, options.tuning, options.saves, Path(scratch) / "out")
