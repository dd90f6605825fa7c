"""How fast a log of a million rows is read: ours beside a loop of `json.loads`, in turns in one run.

    python bench/read_speed.py [--rows N] [--log FILE_OR_FOLDER ...]

Without --log two logs are made up in a temporary folder: a `trainer_log.jsonl` as LlamaFactory writes it, with an
evaluation every 500 rows, and a record with 25 columns. Each is read by a process of its own, three times in turns;
the smallest time counts. CPU seconds do not depend on what else the machine does, seconds on the clock do.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

OURS = "from llamafactory_obs.logs.read import read; rows = len(read(path))"
JSON = "import json, pathlib; rows = sum(1 for line in open(pathlib.Path(path), 'rb') if json.loads(line))"
MEASURE = """
import resource, sys, time
path, before, cpu = sys.argv[1], time.perf_counter(), time.process_time()
{work}
took, used = time.perf_counter() - before, time.process_time() - cpu
print(rows, took, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
COLUMNS = 22


def trainer_log(file: Path, rows: int) -> None:
    with file.open("w", encoding="utf-8") as log:
        for row in range(1, rows + 1):
            place = {"current_steps": row * 5, "total_steps": rows * 5}
            times = {"elapsed_time": str(timedelta(seconds=int(row * 2.3))), "remaining_time": "9 days, 21:39:23"}
            share = {"epoch": 3 * row / rows, "percentage": round(100 * row / rows, 2)}
            loss = round(2 - 1.5 * row / rows + 0.05 * math.sin(row * 1.7), 4)
            log.write(json.dumps(place | {"loss": loss, "lr": 1e-4 * (1 - row / rows)} | share | times) + "\n")
            if row % 500 == 0:
                log.write(json.dumps(place | {"eval_loss": loss + 0.1} | share | times) + "\n")


def record(folder: Path, rows: int) -> None:
    (folder / "obs").mkdir(parents=True)
    names = [f"system/number_{n}" for n in range(COLUMNS)]
    with (folder / "obs" / "steps.jsonl").open("w", encoding="utf-8") as log:
        for row in range(1, rows + 1):
            values = {name: math.sin(row + n) for n, name in enumerate(names)}
            place = {"step": row, "time": 1.8e9 + row * 0.3, "segment": 0, "train/loss": 2 + math.sin(row)}
            log.write(json.dumps(place | values, separators=(",", ":")) + "\n")


def measure(work: str, path: Path) -> tuple[int, float, float, float]:
    program = MEASURE.format(work=work)
    out = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True).stdout
    rows, took, used, peak = out.split()
    return int(rows), float(took), float(used), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--log", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs = args.log
        if not logs:
            logs = [Path(folder) / "trainer_log.jsonl", Path(folder) / "run"]
            trainer_log(logs[0], args.rows)
            record(logs[1], args.rows)
        print(
            "| log | MB | reader | rows | s | CPU s | peak MB | CPU of json / ours |\n|---|---|---|---|---|---|---|---|"
        )
        for log in logs:
            file = log / "obs" / "steps.jsonl" if log.is_dir() else log
            size = file.stat().st_size / 2**20
            tries = [(measure(JSON, file), measure(OURS, log)) for _ in range(3)]
            theirs, ours = (min((t[which] for t in tries), key=lambda m: m[2]) for which in (0, 1))
            for name, (rows, took, used, peak) in (("json.loads loop", theirs), ("logs.read", ours)):
                ratio = f"{theirs[2] / used:.1f}"
                print(
                    f"| {log.name} | {size:.0f} | {name} | {rows:,} | {took:.2f} | {used:.2f} | {peak:.0f} | {ratio} |"
                )


if __name__ == "__main__":
    main()
