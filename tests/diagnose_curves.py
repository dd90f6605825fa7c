"""Curves made by hand for the tests of `diagnose`."""

import math
import random
from pathlib import Path

from llamafactory_obs.logs.curves import Break, Column, Curves


def curves(
    loss=None,
    *,
    every: int = 1,
    kind: str = "sft",
    settings=None,
    resume_at=None,
    max_steps=None,
    path="run",
    **columns,
) -> Curves:
    """A log with one row per value.

    Args:
        loss: the losses; None leaves the column out, a None in it is a missing number.
        every: optimizer steps per row.
        resume_at: index of the first row of another start of training.
        columns: `grad_norm=`, `lr=`, `epoch=`, `eval_loss=`, or any column as `**{"time/step_s": ...}`.
    """
    names = {"grad_norm": "train/grad_norm", "lr": "train/lr", "epoch": "train/epoch", "eval_loss": "eval/loss"}
    given = {names.get(name, name): values for name, values in columns.items()}
    if loss is not None:
        given["train/loss"] = loss
    rows = len(next(iter(given.values())))
    made = Curves(Path(path), "trainer_state", kind, logging_steps=every, max_steps=max_steps)
    made.steps.extend((i + 1) * every for i in range(rows))
    made.settings = dict(settings or {})
    for name, values in given.items():
        column = made.columns[name] = Column()
        for value in values:
            column.append(value)
    if resume_at is not None:
        made.breaks.append(Break(resume_at, "resume"))
    return made


def falling(rows: int, start: float = 2.0, end: float = 0.8, noise: float = 0.03, seed: int = 0) -> list[float]:
    """A healthy curve with normal noise in proportion to the loss."""
    draw = random.Random(seed)
    return [(end + (start - end) * math.exp(-6 * i / rows)) * math.exp(draw.gauss(0, noise)) for i in range(rows)]


def schedule(rows: int, peak: float = 1e-4, warm: int = 10) -> list[float]:
    """Linear warm-up, cosine to zero."""
    return [
        peak * (i + 1) / warm if i < warm else peak * 0.5 * (1 + math.cos(math.pi * (i - warm) / (rows - warm)))
        for i in range(rows)
    ]


def random_log(seed: int) -> Curves:
    """A log with any of the faults that `diagnose` knows, and some that no run has."""
    r = random.Random(seed)
    rows, every = r.randrange(300, 4000), r.choice([1, 1, 5, 10])
    noise, per_epoch = r.choice([0.02, 0.05, 0.1, 0.2, 0.4]), r.choice([rows / 3, rows / 10, rows * 2])
    zero, nan_at = r.random() < 0.1, r.randrange(rows) if r.random() < 0.2 else -1
    up, left, shift, slow = 0.0, 0, 0.0, 1.0
    data: dict[str, list] = {name: [] for name in ("loss", "lr", "grad_norm", "epoch", "time/per_step_s", "eval_loss")}
    for i in range(rows):
        if r.random() < 4 / rows:
            up, left = r.choice([0.3, 0.5, 1, 2, -0.5]), r.choice([1, 1, 5, 20, 100, 400])
        up, left = (up, left - 1) if left > 0 else (0.0, 0)
        shift += r.choice([0.3, -0.4]) if r.random() < 2 / rows else 0.0
        slow = r.choice([1, 2, 3, 1]) if r.random() < 3 / rows else slow
        level = math.log(2 * math.exp(-3 * i / rows) + 0.2) + up + shift - 0.3 * int(i / per_epoch)
        loss, norm = math.exp(level + r.gauss(0, noise)), math.exp(r.gauss(0, 0.3) + up)
        norm *= r.choice([5, 20, 400]) if r.random() < 3 / rows else 1.0
        if 0 <= nan_at <= i < nan_at + r.choice([1, 5, 50]):
            loss, norm = r.choice([0.0, loss]), math.nan
        loss, norm = (0.0, 0.0) if zero and i > 0.7 * rows else (loss, norm)
        data["loss"].append(None if r.random() < 0.01 else loss)
        data["lr"].append(1e-4 * min(1, (i + 1) / (rows * 0.05)) * (1 - i / rows) * (5 if r.random() < 1 / rows else 1))
        data["grad_norm"].append(None if r.random() < 0.01 else norm)
        data["epoch"].append(i / per_epoch)
        data["time/per_step_s"].append(None if r.random() < 0.05 else slow * abs(r.gauss(1, 0.1)))
        data["eval_loss"].append(r.gauss(1, 0.05) + i / rows if i % 50 == 49 else None)
    loss = data.pop("loss")
    made = curves(loss, every=every, max_steps=rows * every, **data)
    places = sorted({r.randrange(1, rows) for _ in range(r.choice([0, 1, 2]))})
    made.breaks = [Break(row, r.choice(["resume", "restart"])) for row in places]
    return made
