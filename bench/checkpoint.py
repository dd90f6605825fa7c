"""What `llamafactory-obs checkpoint` costs: a quick look at 16 GB, and a full one against plain reading.

    python bench/checkpoint.py                  both
    python bench/checkpoint.py --gib 4          the full check on a file of so many GiB (default: 2)

The quick look is at a sparse file: a real header of an 8B model in bf16 (Llama-3.1-8B's shapes, 291 tensors, 4 shards)
and no data, with a real optimizer's and tokenizer's files beside it. The full check reads real random numbers. Its
speed is given beside that of a plain read of the same file in 4 MiB blocks, from the page cache and, where the kernel
lets the cache be dropped for one file (`posix_fadvise`), from the disk.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from llamafactory_obs.checkpoint.examine import Depth
from llamafactory_obs.checkpoint.folder import examine_folder
from llamafactory_obs.checkpoint.headers import read_tensors
from llamafactory_obs.checkpoint.scan import scan

STEP = 1000


def llama_8b() -> dict[str, list[int]]:
    """Names and shapes of Llama-3.1-8B."""
    shapes = {"model.embed_tokens.weight": [128256, 4096], "lm_head.weight": [128256, 4096]}
    shapes["model.norm.weight"] = [4096]
    for layer in range(32):
        at = f"model.layers.{layer}."
        for name, shape in (("q_proj", [4096, 4096]), ("k_proj", [1024, 4096]), ("v_proj", [1024, 4096]),
                            ("o_proj", [4096, 4096])):  # fmt: skip
            shapes[f"{at}self_attn.{name}.weight"] = shape
        for name, shape in (("gate_proj", [14336, 4096]), ("up_proj", [14336, 4096]), ("down_proj", [4096, 14336])):
            shapes[f"{at}mlp.{name}.weight"] = shape
        shapes[f"{at}input_layernorm.weight"] = shapes[f"{at}post_attention_layernorm.weight"] = [4096]
    return shapes


def sparse_checkpoint(folder: Path, shards: int = 4) -> int:
    """`checkpoint-1000` of 16 GB that takes no room; returns the bytes of its weights."""
    folder.mkdir()
    shapes, table, total = llama_8b(), {}, 0
    names = list(shapes)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name in names[shard::shards]:
            size = 2 * int(np.prod(shapes[name]))
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [at, at + size]}
            at, table[name] = at + size, file
        raw = json.dumps(header).encode()
        with open(folder / file, "wb") as out:
            out.write(len(raw).to_bytes(8, "little") + raw)
            out.truncate(8 + len(raw) + at)
        total += at
    index = {"metadata": {"total_size": total}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 128256}))
    vocabulary = {f"token{i}": i for i in range(128256)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    history = [
        {"step": i, "loss": 1 / i, "learning_rate": 1e-5, "grad_norm": 1.0, "epoch": i / 500} for i in range(1, STEP)
    ]
    state = {"global_step": STEP, "epoch": 2.0, "max_steps": 5000, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return total


def quick(place: Path) -> None:
    """The time of a quick look at 16 GB."""
    total = sparse_checkpoint(place / f"checkpoint-{STEP}")
    times, used = [], []
    for _ in range(10):
        begun, before = time.perf_counter(), time.process_time()
        report = examine_folder(place, depth=Depth(values=False))
        times.append(time.perf_counter() - begun)
        used.append(time.process_time() - before)
    [one] = report.checkpoints
    print(f"quick look at {total / 1e9:.1f} GB ({one.verdict.verdict}, {one.what}):")
    print(f"  {min(times) * 1e3:.0f} ms, the first time {times[0] * 1e3:.0f} ms (wanted: under 100 ms)")
    print(f"  of the processor: {min(used) * 1e3:.0f} ms, which does not depend on what else the machine does")


def full(place: Path, gib: float) -> None:
    """The speed of a full check, beside a plain read."""
    size = int(gib * (1 << 30)) // (1 << 20) * (1 << 20)
    raw = json.dumps({"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    file = place / "model.safetensors"
    numbers = np.random.default_rng(0).integers(0, 60, 1 << 20, dtype=np.uint8).tobytes()  # finite in bf16
    with open(file, "wb") as out:
        out.write(len(raw).to_bytes(8, "little") + raw)
        for _ in range(size >> 20):
            out.write(numbers)
        out.flush()
        os.fsync(out.fileno())
    tensors = read_tensors(place, (file.name,))
    print(f"full check of {size / 1e9:.1f} GB bf16, GB/s:")
    for where, cold in (("page cache", False), ("disk", True)):
        plain, ours = (best(file, cold, work) for work in (lambda: read(file), lambda: scan(place, tensors)))
        print(f"  {where:<10}  plain read {size / plain / 1e9:5.2f}   full check {size / ours / 1e9:5.2f}")
    print(f"  peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def best(file: Path, cold: bool, work, times: int = 3) -> float:
    """The shortest of several times, in seconds; `cold`: the file is dropped from the page cache before each."""
    found = []
    for _ in range(times):
        if cold:
            with open(file, "rb") as handle:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def read(file: Path) -> None:
    """Read a file in blocks of 4 MiB and do nothing with it."""
    buffer = bytearray(4 << 20)
    with open(file, "rb", buffering=0) as handle:
        while handle.readinto(buffer):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0, help="size of the full check's file (default: 2)")
    parser.add_argument("--dir", help="where the files go (default: a temporary folder)")
    words = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=words.dir))
    try:
        (place / "run").mkdir()
        quick(place / "run")
        full(place, words.gib)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
