"""What the folder around the checkpoint means for the resume: newer ones, rotation, another training at work."""

import shlex

from ..checkpoint.run_of import OLDER
from ..preflight.ahead.effective import Effective
from .point import GRAVE, INFO, WARN, Point


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
    outside = best.path.resolve().parent != plan.output.resolve()
    if outside:
        points.append(Point("state.outside", WARN, {"checkpoint": str(best.path), "output": str(plan.output)}))
    else:
        points += _rotation(run, plan)
    return points


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
    """Newer folders that stay count as the newest for `save_total_limit`: rotation deletes the new ones, by their
    numbers (transformers 5.6.0, `rotate_checkpoints`: at most `save_total_limit` stay, always the highest)."""
    left = [one for one in (*plan.choice.passed, *plan.choice.newer) if (one.step or 0) > (plan.best.step or 0)]
    if not left:
        return []
    names = [shlex.quote(str(plan.output / one.name)) for one in left]
    values = {"count": len(left), "names": ", ".join(one.name for one in left), "paths": " ".join(names)}
    limit = run.get("save_total_limit")
    if isinstance(limit, int) and 0 < limit <= len(left):
        return [Point("state.rotation", GRAVE, {**values, "limit": limit}, "move")]
    return [Point("state.leftover", INFO, values, "move")]
