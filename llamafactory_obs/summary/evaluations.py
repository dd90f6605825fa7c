"""The evaluations of a run and what they say of the next run's epochs."""

import math
from bisect import bisect_right
from collections.abc import Sequence

from ..detect.eval_turn import EvalTurnDetector
from ..logs.curves import Curves
from .identity_facts import number
from .model import Evaluations
from .parts import Why

_ROUND = 2


def evaluations_of(curves: Curves) -> tuple[Evaluations, dict[str, Why]]:
    """The lowest eval loss, and from its epoch `num_train_epochs` for the next run.

    There is no number, but a reason, where nothing was evaluated, where one evaluation shows no minimum, where the last
    one is the lowest (the loss still falls), or where the epoch is not known.
    """
    steps, losses = curves.points("eval/loss")
    points = list(zip(steps, epochs_at(curves, steps), losses, strict=True))
    finite = [point for point in points if math.isfinite(point[2])]
    best = min(finite, key=lambda point: point[2], default=None)
    why = _why(curves, points, finite, best)
    return (
        Evaluations(
            count=len(points),
            first=points[0] if points else None,
            last=points[-1] if points else None,
            best=best,
            next_epochs=None if why else max(10**-_ROUND, round(best[1], _ROUND)),
            next_sure=why is None and _rose(finite),
        ),
        {"evaluations.next_epochs": why} if why else {},
    )


def _why(curves: Curves, points: list, finite: list, best: tuple | None) -> Why | None:
    if not points:
        strategy = str(curves.settings.get("eval_strategy") or "no")
        return Why("no_eval") if strategy == "no" else Why("no_eval_yet", {"strategy": strategy})
    if best is None:
        return Why("eval_not_finite")
    if len(finite) == 1:
        return Why("one_eval")
    if best is finite[-1]:
        return Why("still_falling", {"step": best[0]})
    return Why("no_epoch") if not best[1] else None


def _rose(finite: list[tuple[int, float | None, float]]) -> bool:
    """Is the loss above its lowest by more than its noise afterwards? As `detect/eval_turn.py` judges it."""
    detector = EvalTurnDetector(least=1)
    found = [detector.update(step, loss, None) for step, _, loss in finite]
    return found[-1] is not None or detector.finish() is not None


def epochs_at(curves: Curves, steps: Sequence[int]) -> list[float | None]:
    """The position in the data at each step: recorded, else from the plan; None where neither is known."""
    column, known = curves.columns.get("train/epoch"), {}
    if column is not None:
        rows = zip(curves.steps, column.values, column.present, strict=True)
        known = {step: epoch for step, epoch, there in rows if there and math.isfinite(epoch)}
    ordered = sorted(known)
    return [_epoch(curves, step, known, ordered) for step in steps]


def _epoch(curves: Curves, step: int, known: dict[int, float], ordered: list[int]) -> float | None:
    place = bisect_right(ordered, step)
    if place and ordered[place - 1] > 0:
        nearest = ordered[place - 1]
        return known[nearest] * step / nearest
    epochs, given = number(curves.settings.get("num_train_epochs")), number(curves.settings.get("max_steps"))
    if epochs and curves.max_steps and not (given and given > 0):
        return step * epochs / curves.max_steps
    return None
