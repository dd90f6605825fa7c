"""What following a run costs: the first look at a long record, a look with few new rows, a refresh of the screen.

    python bench/live.py [--steps N] [--probes N] [--record DIR]

The record of a run of three hours is made up: 20,000 steps of 31 columns, an evaluation every 500, a checkpoint every
1000 with 200 probes of 1.5 KB of output each, an alert or another event every 100. `layers.jsonl` is not read by the
follower and left out. Then single steps are appended, one look after each. CPU milliseconds do not depend on what else
the machine does, those on the clock do; medians.
"""

import argparse
import functools
import json
import math
import random
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

from llamafactory_obs.live import Follower
from llamafactory_obs.record.schema import EVENTS, PROBES, STEPS
from llamafactory_obs.record.writer import RecordWriter
from llamafactory_obs.watch.layout import draw
from llamafactory_obs.watch.writing import Writing

PARTS = (
    "data_wait",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "eval",
    "other",
    "callbacks",
)
SHARES = ("supervised_ratio", "padding_ratio", "truncated_ratio", "min_supervised_ratio")
SYSTEM = ("allocated_gib", "reserved_gib", "peak_allocated_gib", "peak_reserved_gib", "device_used_gib", "gpu_util")
SYSTEM += ("sm_activity", "process_ram_gib", "ram_available_gib", "disk_free_gib", "cpu_percent", "tokens_per_sec")
LOOKS = 200


def step_row(step: int) -> dict:
    noise = random.random()
    row = {"step": step, "time": 1.7e9 + step * 0.54, "train/loss": 2 * math.exp(-step / 4000) + 0.5 + 0.1 * noise}
    row |= {"train/grad_norm": 1 + noise, "train/lr": 1e-4, "train/epoch": step / 5000, "time/step_s": 0.5 + noise / 9}
    row |= {f"time/{name}_s": noise / 10 for name in PARTS} | {f"data/{name}": noise for name in SHARES}
    return row | {f"system/{name}": 50 * noise for name in SYSTEM}


def event(step: int, kind: str, **more) -> dict:
    row = {"step": step, "time": 1.7e9 + step * 0.54, "kind": kind, "level": "info", "name": "bench", "title": kind}
    return (
        row
        | {"text": "something happened, said in a sentence of usual length", "evidence": {}, "action": "none"}
        | more
    )


def make(folder: Path, steps: int, probes: int) -> RecordWriter:
    """The record, by the recorder's own writer."""
    writer = RecordWriter(folder, False, print)
    writer.append(EVENTS, event(0, "start", evidence={"max_steps": steps + 2 * LOOKS}))
    for step in range(1, steps + 1):
        writer.append(STEPS, step_row(step))
        if step % 100 == 0:
            life = {
                "id": f"bench/{step % 700}",
                "state": "raised",
                "level": "warn",
                "since": step,
                "count": 1,
                "told": True,
            }
            writer.append(EVENTS, event(step, "alert", alert=life | {"open": step % 200 == 0}))
        if step % 500 == 0:
            writer.append(STEPS, {"step": step, "time": 1.7e9 + step * 0.54, "eval/loss": 1.0})
        if step % 1000 == 0:
            writer.append(EVENTS, event(step, "checkpoint", evidence={"path": f"checkpoint-{step}"}))
            for number in range(probes):
                row = {
                    "step": step,
                    "checkpoint": f"checkpoint-{step}",
                    "probe": f"p{number}",
                    "passed": number % 5 > 0,
                }
                row |= {"content": "c", "suite": "s", "errors": [], "prompt": "ask", "seconds": 1.0}
                writer.append(PROBES, row | {"output": "word " * 300, "turns": [{"raw": "word " * 300}]})
    return writer


def measured(work) -> tuple[object, float, float]:
    """The result, CPU milliseconds, milliseconds on the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.process_time() - cpu) * 1e3, (time.perf_counter() - clock) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--probes", type=int, default=200)
    parser.add_argument("--record", type=Path, help="only the first look at this run's record")
    args = parser.parse_args()
    if args.record:
        _, cpu, clock = measured(Follower(args.record).update)
        print(f"first look at {args.record}: {cpu:.0f} ms CPU, {clock:.0f} ms")
        return
    with tempfile.TemporaryDirectory() as folder:
        writer = make(Path(folder), args.steps, args.probes)
        size = sum(file.stat().st_size for file in (Path(folder) / "obs").iterdir()) / 1e6
        firsts = [measured(Follower(folder).update)[1:] for _ in range(3)]
        cpu, clock = (min(one[place] for one in firsts) for place in (0, 1))
        print(f"first look at {size:.0f} MB: {cpu:.0f} ms CPU, {clock:.0f} ms (best of 3)")
        tracemalloc.start()
        follower = Follower(folder)
        follower.update()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"held {held / 1e6:.1f} MB, {peak / 1e6:.1f} MB at most while reading")
        before, looks, draws, sent = None, [], [], []
        for step in range(args.steps + 1, args.steps + LOOKS + 1):
            writer.append(STEPS, step_row(step))
            snapshot, *took = measured(follower.update)
            looks.append(took)
            canvas, *drew = measured(functools.partial(draw, snapshot, 80, 24, Writing()))
            draws.append(drew)
            sent.append(len(canvas.changes(before).encode()))
            before = canvas
        idle = [measured(follower.update)[1:] for _ in range(LOOKS)]
        plain, *took = measured(snapshot.as_dict)
        for name, times in (("one new row", looks), ("nothing new", idle), ("drawing 80 x 24", draws)):
            cpu, clock = (statistics.median(one[place] for one in times) for place in (0, 1))
            print(f"{name}: {cpu:.2f} ms CPU, {clock:.2f} ms; slowest {max(one[0] for one in times):.1f} ms CPU")
        print(f"as_dict: {took[0]:.0f} ms CPU, {len(json.dumps(plain)) / 1e3:.0f} KB")
        print(
            f"screen: {sent[0]} bytes at first, then {statistics.median(sent[1:]):.0f} a refresh (most {max(sent[1:])})"
        )


if __name__ == "__main__":
    main()
