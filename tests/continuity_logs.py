"""Records and logs of runs that were interrupted and resumed, row by row, with one thing wrong or nothing."""

import json
import math
import random
from pathlib import Path

CHECKPOINT, KILLED, END = 100, 107, 140
PER_EPOCH = 400


def row(step: int, seed: int = 0, **changed) -> dict:
    """A step of a run that learns slowly: the same numbers for the same step, as on a deterministic machine."""
    draw = random.Random(f"{seed} {step}")
    values = {
        "train/loss": 2.0 * math.exp(-step / 400) + draw.gauss(0, 0.05),
        "train/grad_norm": math.exp(draw.gauss(0, 0.2)),
        "train/lr": 1e-3 * (1 - (step - 1) / 1000),
        "train/epoch": step / PER_EPOCH,
    }
    return {"step": step, "time": 1.7e9 + step, **values, **changed}


def rows(first: int, last: int, segment: int, change=lambda step, row: {}, seed: int = 0) -> list[dict]:
    """The rows of one start of training; `change(step, row)` says which columns are others."""
    made = [row(step, seed) for step in range(first, last + 1)]
    return [{**one, **change(one["step"], one), "segment": segment} for one in made]


def record(folder: Path, *starts: list[dict], events: list[dict] = (), samples: list[dict] = (), run=None) -> Path:
    """Our record of these starts in `folder/obs`."""
    obs = folder / "obs"
    obs.mkdir(parents=True)
    begun = [
        {
            "step": part[0]["step"] - 1,
            "kind": "resume" if part[0]["segment"] else "start",
            "segment": part[0]["segment"],
        }
        for part in starts
    ]
    begun = [{**one, "level": "info", "title": "", "text": "", "evidence": {}} for one in begun]
    for name, lines in (
        ("steps.jsonl", [one for part in starts for one in part]),
        ("events.jsonl", [*begun, *events]),
        ("samples.jsonl", samples),
    ):
        (obs / name).write_text("".join(json.dumps(one) + "\n" for one in lines))
    (obs / "run.json").write_text(json.dumps(run or {"schema_version": 1}))
    return folder


def foreign(file: Path, *starts: list[dict], digits: int = 4, norm: bool = False) -> Path:
    """The same as a `trainer_log.jsonl`, with the loss rounded as the Trainer does."""
    names = {"train/loss": "loss", "train/lr": "lr", "train/epoch": "epoch"} | (
        {"train/grad_norm": "grad_norm"} if norm else {}
    )
    lines = []
    for part in starts:
        for one in part:
            line = {"current_steps": one["step"], "total_steps": END}
            line |= {theirs: one[ours] for ours, theirs in names.items() if ours in one}
            line |= {"loss": round(one["train/loss"], digits), "epoch": round(one["train/epoch"], 2)}
            passed = one["step"] - part[0]["step"] + 1  # seconds of this start
            line["elapsed_time"] = f"{passed // 3600}:{passed // 60 % 60:02d}:{passed % 60:02d}"
            lines.append(line | {"throughput": 600.0})
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return file


def killed(change=lambda step, row: {}, last: int = END, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Killed at step 107, resumed from checkpoint-100: steps 101 to 107 stand there twice."""
    return rows(1, KILLED, 0), rows(CHECKPOINT + 1, last, 1, change, seed)


def stopped(change=lambda step, row: {}, last: int = END) -> tuple[list[dict], list[dict]]:
    """Stopped at step 100 and resumed there: no step was made twice."""
    return rows(1, CHECKPOINT, 0), rows(CHECKPOINT + 1, last, 1, change)


def batches(first: int, last: int, segment: int, order: list[int], size: int = 2) -> list[dict]:
    """Rows of `samples.jsonl`: step N has the N-th pair of `order`."""
    lines = []
    for step in range(first, last + 1):
        picked = order[(step - 1) * size : step * size]
        batch = [{"row": one, "hash": f"{one:016x}", "labels_hash": f"{one:016x}"} for one in picked]
        lines.append({"step": step, "segment": segment, "rank": 0, "micro_batches": [batch]})
    return lines
