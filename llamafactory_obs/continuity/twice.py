"""Steps that were made twice: what an earlier start recorded of them against what this one did, step by step."""

import math
from dataclasses import dataclass

from ..logs.resumed import Resumed

#: rates and epochs follow from the step alone: the same sum may end in another last bit
ROUNDING = 1e-6


@dataclass(frozen=True)
class Twice:
    """One column over these steps.

    Attributes:
        steps: those that have it both times, rising.
        before, after: the two values of each.
    """

    steps: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def apart(self) -> list[float]:
        """After minus before; infinite where only one of them is finite, 0 where both are NaN or the same infinity."""
        return [_apart(a, b) for a, b in zip(self.before, self.after, strict=True)]

    @property
    def unequal(self) -> list[int]:
        """The steps at which they differ in any bit."""
        return [step for step, apart in zip(self.steps, self.apart, strict=True) if apart]

    def beyond(self, share: float) -> list[int]:
        """The steps at which they differ by more than this share of the larger one."""
        both = zip(self.steps, self.before, self.after, self.apart, strict=True)
        return [step for step, a, b, apart in both if abs(apart) > share * max(abs(a), abs(b), 1e-30)]

    @property
    def largest(self) -> float:
        return max(map(abs, self.apart), default=0.0)

    def at(self, step: int) -> tuple[float, float]:
        """Both values of a step."""
        place = self.steps.index(step)
        return self.before[place], self.after[place]

    def since(self, step: int) -> "Twice":
        """From a step on."""
        first = sum(one < step for one in self.steps)
        return Twice(self.steps[first:], self.before[first:], self.after[first:])

    def logs(self) -> "Twice":
        """Of the logarithms, where both are positive."""
        both = [one for one in zip(self.steps, self.before, self.after, strict=True) if 0 < min(one[1:]) < math.inf]
        both = [(step, math.log(a), math.log(b)) for step, a, b in both if b < math.inf and a < math.inf]
        return Twice(*zip(*both, strict=True)) if both else Twice((), (), ())


def twice(resumed: Resumed, column: str) -> Twice:
    """A column at the steps that have it both times."""
    old = {row["step"]: row[column] for row in resumed.again if column in row}
    after = [row for row in resumed.after if column in row and row["step"] in old]
    both = [(row["step"], old[row["step"]], row[column]) for row in after]
    return Twice(*zip(*both, strict=True)) if both else Twice((), (), ())


def _apart(a: float, b: float) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    return b - a if math.isfinite(a) and math.isfinite(b) else math.inf
