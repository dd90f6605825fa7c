"""What the folder around the checkpoint means for the resume: newer ones, rotation, another training at work."""

import re
import shlex
import time
from pathlib import Path

from ..checkpoint.run_of import OLDER
from ..preflight.ahead.effective import Effective
from .point import GRAVE, INFO, WARN, Point

#: seconds by which a folder's time may be ahead of the clock
_AHEAD = 60
#: what transformers' rotation takes for a checkpoint (5.6.0, `sort_checkpoints`); it resumes from `checkpoint-N` alone
_COUNTED = re.compile(r"checkpoint-\d+.+")


def around(run: Effective, plan) -> list[Point]:
    """Points about the checkpoint itself, those that are newer, and the folder.

    Args:
        plan: see `plan.Plan`; its checkpoint, fate and choice are known.
    """
    choice, best, points = plan.choice, plan.best, []
    if choice.running:
        points.append(Point("state.running", GRAVE, {"output": shlex.quote(str(choice.folder))}, "running"))
    if plan.never:
        from_ = plan.start.checkpoint
        values = {"stage": plan.stage, "checkpoint": str(from_)}
        return [*points, Point("state.never", GRAVE, values, "adapter" if from_ is not None else "")]
    for one in choice.passed:
        why = one.run_why if one.run == OLDER else (one.verdict.reasons or [one.moving])[0]
        name = "state.passed_older" if one.run == OLDER else "state.passed"
        points.append(Point(name, INFO, {"checkpoint": one.name, "why": why}))
    if best is None:
        return [*points, Point("state.none", GRAVE, {"output": str(choice.folder)})]
    points += _itself(plan)
    if choice.newer:
        newest = choice.newer[0]
        points.append(Point("state.newer", WARN, {"checkpoint": best.name, "newer": newest.name}))
    if not inside(best.path, plan.output):
        points.append(Point("state.outside", WARN, {"checkpoint": str(best.path), "output": str(plan.output)}))
    else:
        points += _rotation(run, plan)
    return points


def inside(checkpoint: Path, output: Path) -> bool:
    """Does it lie in the output folder, or is it that? A link in there to another disk does."""
    return output.resolve() in (checkpoint.absolute().parent.resolve(), checkpoint.resolve())


def _itself(plan) -> list[Point]:
    best, fate, points = plan.best, plan.fate, []
    if best.run == OLDER:
        points.append(Point("state.older", GRAVE, {"checkpoint": best.name, "why": best.run_why}))
    if fate.ends is not None:
        return [*points, Point("state.ends", GRAVE, {"checkpoint": best.name, "why": fate.ends.why})]
    for part in fate.lost:
        level = WARN if part.name == "rng" else GRAVE
        values = {"file": part.file}
        points.append(Point(f"lost.{part.name}", level, values))
    for part in fate.wrong:
        points.append(Point("state.wrong", GRAVE, {"file": part.file, "why": part.why}))
    if best.moving:
        points.append(Point("state.moving", GRAVE, {"checkpoint": best.name, "why": best.moving}))
    told = {part.file for part in (*fate.lost, *fate.wrong)}
    if best.verdict.reasons and not told and not plan.choice.good:
        points.append(Point("state.wrong", GRAVE, {"file": best.name, "why": best.verdict.reasons[0]}))
    return points


def _rotation(run: Effective, plan) -> list[Point]:
    """Newer folders that stay, and `save_total_limit`: rotation keeps the newest by the folders' times, not by their
    numbers (transformers 5.6.0, `rotate_checkpoints`), and counts whatever begins with `checkpoint-N`."""
    limit = run.get("save_total_limit")
    limit = limit if isinstance(limit, int) and limit > 0 else None
    newer = [one.name for one in plan.choice.newer]
    passed = [one for one in plan.choice.passed if one.path.is_dir()]  # LlamaFactory takes no file for a checkpoint
    left = [one.name for one in passed if (one.step or 0) > (plan.best.step or 0)] + newer
    points = []
    if left:
        values = _named(left, plan.output) | {"limit": limit}
        ahead = [name for name in left if _time(plan.output / name) > time.time() + _AHEAD]
        if limit and limit <= len(ahead):
            points.append(Point("state.rotation", GRAVE, values | _named(ahead, plan.output), "move"))
        elif limit and newer:
            points.append(Point("state.newer_deleted", WARN, values | _named(newer, plan.output), "move"))
        else:
            points.append(Point("state.leftover_limit" if limit else "state.leftover", INFO, values, "move"))
    others = sorted(one.name for one in plan.output.glob("checkpoint-*") if one.is_dir() and _COUNTED.match(one.name))
    if limit and others:
        points.append(Point("state.counted", WARN, _named(others, plan.output) | {"limit": limit}, "move"))
    return points


def _named(names: list[str], output: Path) -> dict:
    paths = " ".join(shlex.quote(str(output / name)) for name in names)
    aside = shlex.quote(str(output / "set_aside"))
    return {"count": len(names), "names": ", ".join(names), "paths": paths, "aside": aside}


def _time(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
