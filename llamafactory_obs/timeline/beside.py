"""The metrics at one step beside what they were before and after."""

import math
from dataclasses import dataclass

from ..diagnosis.causes.ordinary import Ordinary, middle
from ..diagnosis.causes.place import row_of
from ..logs.curves import Curves

_BEFORE, _AFTER = 64, 8


@dataclass(frozen=True)
class Beside:
    """One metric around a step.

    before   median of the rows before (up to 64); None where there are none
    at       the step's own value
    after    median of the 8 rows after
    z        robust z-score of `at` against the rows before; None where there are fewer than 12
    """

    name: str
    before: float | None
    at: float | None
    after: float | None
    z: float | None


def beside(curves: Curves, names: list[str], step: int) -> list[Beside]:
    """The named columns at the row of this step (else at the last one before it)."""
    row = row_of(curves.steps, step)
    found = []
    for name in names:
        column = curves.columns[name]
        before = [column[r] for r in range(max(row - _BEFORE, 0), row)]
        after = [column[r] for r in range(row + 1, min(row + 1 + _AFTER, len(curves)))]
        past, at = Ordinary.of([value for value in before if value is not None]), column[row]
        known = past is not None and at is not None and math.isfinite(at)
        found.append(Beside(name, _middle(before), at, _middle(after), past.z(at) if known else None))
    return found


def _middle(values: list[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return middle(finite) if finite else None
