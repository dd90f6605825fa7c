"""Small logs made by hand, for the tests of causes and timelines."""

import math
import random
from pathlib import Path

from llamafactory_obs.detect import Finding
from llamafactory_obs.logs.curves import Column, Curves

STEPS = 120
BAD = 90


def noisy(count: int = STEPS, level: float = 1.5, spread: float = 0.05, seed: int = 0) -> list[float]:
    """A loss that falls a little, with noise."""
    draw = random.Random(seed)
    return [level * (1 - 0.001 * i) + draw.gauss(0, spread) for i in range(count)]


def up(values: list[float], at: int = BAD, by: float = 2.0, rows: int = 1) -> list[float]:
    """Raised by `by` on `rows` steps from step `at` on (steps count from 1)."""
    return [value + by if at <= step < at + rows else value for step, value in enumerate(values, start=1)]


def cosine(count: int = STEPS, peak: float = 1e-4, warm_up: int = 10) -> list[float]:
    """A usual schedule."""
    return [
        peak * (i + 1) / warm_up
        if i < warm_up
        else peak * 0.5 * (1 + math.cos(math.pi * (i - warm_up) / (count - warm_up)))
        for i in range(count)
    ]


def log(loss: list[float] | None = None, *, path: Path = Path("run"), source: str = "obs", **columns) -> Curves:
    """Curves with one row a step; a column `train_lr` is `train/lr`, `data_max_length` is `data/max_length`."""
    loss = noisy() if loss is None else loss
    curves = Curves(path, source, "sft")
    curves.steps.extend(range(1, len(loss) + 1))
    for name, values in {"train_loss": loss, **columns}.items():
        column = Column(len(loss))
        for row, value in enumerate(values):
            column[row] = value
        curves.columns[name.replace("_", "/", 1)] = column
    return curves


def lengths(count: int = STEPS, seed: int = 1) -> list[float]:
    """Longest conversation of each batch, in tokens."""
    draw = random.Random(seed)
    return [float(draw.randint(400, 600)) for _ in range(count)]


def found(name: str = "spike", step: int = BAD, **evidence) -> Finding:
    return Finding(name, "warn", step, "", evidence)


def event(
    step: int, title: str, *, kind: str = "alert", name: str = "optimizer", level: str = "warn", **evidence
) -> dict:
    about = {"step": step, "time": 0.0, "segment": 0, "kind": kind, "level": level, "name": name}
    return about | {"title": title, "text": f"{title} at {step}.", "evidence": evidence}
