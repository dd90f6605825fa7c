"""From what was compared to statuses: equal bit for bit, not beyond the noise, or beyond it.

The noise floor is the difference of two unbroken trainings. Its size is the root mean square over steps (or the
Euclidean distance over all weights): a single largest difference is a matter of luck, a sum over many is not. The
broken training up to its kill is one more start of the same config: its distance from the unbroken one is noise too.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from .curves import NUMBERS, SAMPLES, Curves, compare
from .end_state import StateDifference
from .outcome import DIFFERS, EQUAL, NOISE, UNKNOWN, Measure
from .weights import TensorDifference
from .words import say

#: two distances of three starts of the same config are of the same size; one beyond three times the other is no chance
FACTOR = 3.0
#: what is compared step by step, with its name for people
COLUMNS = {**NUMBERS, SAMPLES: "samples"}


def judge_curves(first: Curves, resumed: Curves, again: Curves, broken: Curves, after: range) -> list[Measure]:
    """One measure for each column over the steps after the resume."""
    found = []
    for column, name in COLUMNS.items():
        gap = compare(first, resumed, column, after)
        floor = compare(first, again, column, after)
        early = compare(first, broken, column, range(1, after.stop))
        size = max(floor.size, early.size)
        if not gap.compared:
            found.append(Measure(name, "steps", UNKNOWN, why=say("why.not_recorded")))
            continue
        beyond = [step for step, value in gap.by_step.items() if value > max(floor.largest, early.largest)]
        if not gap.unequal:
            status = EQUAL if not gap.missing else UNKNOWN
        elif size > 0 and (gap.size <= FACTOR * size or not math.isfinite(size)):
            status = NOISE
        else:
            status = DIFFERS
        first_step = min(beyond, default=gap.first) if status == DIFFERS else None
        why = say("why.steps_missing", missing=gap.missing, steps=len(after)) if gap.missing else ""
        found.append(
            Measure(name, "steps", status, gap.compared, gap.unequal, gap.largest, floor.unequal,
                    floor.largest, first_step, why)
        )  # fmt: skip
    return found


def same_start(one: Curves, other: Curves, steps: Iterable[int]) -> list[Measure]:
    """Two starts of training over some steps, only counted."""
    found = []
    steps = list(steps)
    for column, name in COLUMNS.items():
        gap = compare(one, other, column, steps)
        if gap.compared:
            status = DIFFERS if gap.unequal else EQUAL
            found.append(Measure(name, "steps", status, gap.compared, gap.unequal, gap.largest, first=gap.first))
    return found


def judge_weights(gap: list[TensorDifference] | str, floor: list[TensorDifference] | str) -> Measure:
    """All tensors together; a text says why they were not compared."""
    if isinstance(gap, str):
        return Measure("weights", "tensors", UNKNOWN, why=gap)
    unequal, largest, distance = _together(gap)
    known = not isinstance(floor, str)
    floor_unequal, floor_largest, noise = _together(floor) if known else (None, None, 0.0)
    status = _status(unequal, distance, noise)
    return Measure("weights", "tensors", status, len(gap), unequal, largest, floor_unequal, floor_largest)


def judge_state(name: str, gap: StateDifference, floor: StateDifference) -> Measure:
    """A part of the last checkpoint beside the weights."""
    if gap.why:
        return Measure(name, "values", UNKNOWN, why=gap.why)
    floor_unequal, floor_largest, noise = None, None, 0.0
    if not floor.why:
        floor_unequal, floor_largest, noise = floor.unequal, floor.largest, math.sqrt(floor.squares)
    status = _status(gap.unequal, math.sqrt(gap.squares), noise)
    return Measure(name, "values", status, gap.compared, gap.unequal, gap.largest, floor_unequal, floor_largest)


def judge_generators(gap: StateDifference, floor: StateDifference) -> Measure:
    """The random numbers' state has no size: where two unbroken trainings end in another one, nothing can be said."""
    measure = judge_state("rng state", gap, floor)
    if not measure.unequal:
        return measure
    status = NOISE if measure.floor_unequal else DIFFERS
    floor_largest = None if measure.floor_unequal is None else math.inf
    return replace(measure, status=status, largest=math.inf, floor_largest=floor_largest)


def largest_tensors(gap: list[TensorDifference], floor: list[TensorDifference] | str, most: int = 10) -> list[dict]:
    """The weights that differ, the largest difference first."""
    noise = {} if isinstance(floor, str) else {one.name: one.largest for one in floor}
    unequal = [one for one in gap if one.unequal]
    unequal.sort(key=lambda one: math.inf if one.largest is None else one.largest, reverse=True)
    return [
        {
            "name": one.name,
            "elements": one.elements,
            "unequal": one.unequal,
            "largest": one.largest,
            "floor_largest": noise.get(one.name),
        }
        for one in unequal[:most]
    ]


def _together(tensors: list[TensorDifference]) -> tuple[int, float | None, float]:
    """How many differ, the largest difference, and the distance of all weights."""
    unequal = [one for one in tensors if one.unequal]
    numbers = [one.largest for one in unequal if one.largest is not None]
    distance = math.sqrt(sum(one.squares for one in unequal)) if len(numbers) == len(unequal) else math.inf
    return len(unequal), max(numbers, default=None if unequal else 0.0), distance


def _status(unequal: int, distance: float, noise: float) -> str:
    if not unequal:
        return EQUAL
    return NOISE if noise > 0 and distance <= FACTOR * noise else DIFFERS
