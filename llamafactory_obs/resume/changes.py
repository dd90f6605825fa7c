"""Which keys differ between this config and the run that is resumed, and what becomes of each."""

import json
import math
from pathlib import Path

from ..preflight.ahead.effective import Effective
from ..preflight.ahead.resume_changes import (
    CADENCE,
    DATA,
    EFFECT,
    IGNORED,
    LENGTH,
    MODEL,
    ROWS,
    SCALE,
    SCHEDULE,
    Changes,
)
from .point import GRAVE, INFO, WARN, Point

#: a total batch is made of these
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "processes")


def judge_changes(run: Effective, changes: Changes, folder: Path, step: int) -> list[Point]:
    """One point for each key that differs; keys of one total batch share one.

    Args:
        changes: of `find_changes`: key -> (old, new).
        folder: the run's output folder, for the command that scales the rate.
        step: at which it resumes.
    """
    points: list[Point] = []
    for key in IGNORED:
        if key in changes:
            points.append(_ignored(key, *changes[key], folder))
    for group, name, level in ((MODEL, "model", GRAVE), (SCALE, "scale", GRAVE), (DATA, "data", GRAVE)):
        points += [Point(f"changed.{name}", level, shown(key, *changes[key])) for key in group if key in changes]
    if any(key in changes for key in _BATCH):
        points.append(_batch(run, changes, step))
    points += _order(run, changes)
    for key in SCHEDULE:
        if key in changes:
            points.append(Point("changed.schedule", WARN, shown(key, *changes[key]), "schedule"))
    points += [Point("changed.cadence", WARN, shown(key, *changes[key])) for key in CADENCE if key in changes]
    points += [Point("changed.effect", INFO, shown(key, *changes[key])) for key in EFFECT if key in changes]
    return points


def shown(key: str, old: object, new: object) -> dict:
    """The values of a point about one key."""
    return {"key": key, "old": short(old), "new": short(new)}


def short(value: object, width: int = 40) -> str:
    """A value in one line, as YAML would have it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def scale_command(folder: Path, old: float, new: float) -> str:
    """The command that makes the ignored learning rate count."""
    import shlex

    return f"llamafactory-obs control {shlex.quote(str(folder))} --lr-scale {new / old:.6g} --queue"


def length(changes: Changes, before: int | None, total: int | None, constant: bool) -> Changes:
    """The keys that say how long the run is, as one: `steps`. None of it where the number of steps is as before."""
    if total is None:
        return changes
    changes = {key: change for key, change in changes.items() if key not in LENGTH}
    if isinstance(before, int) and before != total and not constant:
        changes["steps"] = (before, total)
    return changes


def _ignored(key: str, old: object, new: object, folder: Path) -> Point:
    values = shown(key, old, new)
    numbers = isinstance(old, (int, float)) and isinstance(new, (int, float))
    if key == "learning_rate" and numbers and old > 0 and new > 0 and math.isfinite(new / old):
        return Point("changed.ignored", GRAVE, {**values, "command": scale_command(folder, old, new)}, "scale_rate")
    return Point("changed.ignored", GRAVE, values, "new_optimizer")


def batches(run: Effective, changes: Changes) -> tuple[int, int]:
    """The total batch before and now, sequences of one optimizer step."""
    now = {key: run.processes if key == "processes" else run.get(key) for key in _BATCH}
    old = {key: changes[key][0] for key in _BATCH if key in changes and isinstance(changes[key][0], int)}
    then = now | old
    return math.prod(then.values()), math.prod(now.values())


def _batch(run: Effective, changes: Changes, step: int) -> Point:
    """Rows are skipped by `step x total batch`: with the same total the same rows come next."""
    old, new = batches(run, changes)
    told = ", ".join(f"{key} {short(changes[key][0])} -> {short(changes[key][1])}" for key in _BATCH if key in changes)
    values = {"keys": told, "old": old, "new": new, "rows": abs(new - old) * step, "step": step}
    if old == new:
        if "processes" in changes:
            return Point("changed.same_batch_processes", WARN, values)
        return Point("changed.same_batch", INFO, values)
    return Point("changed.larger_batch" if new > old else "changed.smaller_batch", GRAVE, values, "batch")


def _order(run: Effective, changes: Changes) -> list[Point]:
    """Keys that decide the order of the rows. A seed of the data goes before the seed of all."""
    points = []
    for key in ROWS:
        if key in _BATCH or key not in changes:
            continue
        if key == "seed" and run.get("data_seed") is not None and "data_seed" not in changes:
            points.append(Point("changed.effect", INFO, shown(key, *changes[key])))
        elif key == "ignore_data_skip":
            continue  # said with the data's position
        else:
            old, new = changes[key]
            if key == "data_seed":
                seed = changes.get("seed", (run.get("seed"), run.get("seed")))
                old, new = (mine if mine is not None else of for mine, of in ((old, seed[0]), (new, seed[1])))
                if old == new:
                    continue
            points.append(Point("changed.order", GRAVE, shown(key, old, new)))
    return points
