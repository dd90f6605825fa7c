"""What is ordinary: batches around the step, and how far a number lies from theirs. Plain numbers, no torch.

The rule is the one of the spike detector (docs/spike_rule.md): z = (x - median) / max(1.4826 MAD, floor), out of the
ordinary from 5 on. For 8 normal values beside x that happens by chance in 0.5% of all cases, for 4 in 2% (simulated);
the modified z-score of Iglewicz and Hoaglin (1993) with its cutoff of 3.5 would be 1.5% and 4%.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..detect.rolling import RollingMedian

#: as in the spike detector
LIMIT = 5.0
#: fewer ordinary batches judge nothing
FEWEST = 4
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Scale:
    """How a number is compared.

    Attributes:
        log: its logarithm is compared.
        floor: the least spread that is believed, in the unit of what is compared.
        share: the least spread as a share of the median (only without `log`).
        upward: only a higher number is out of the ordinary.
        carries: being out of the ordinary is a verdict; of the others it is a hint.
    """

    log: bool = False
    floor: float = 0.0
    share: float = 0.0
    upward: bool = False
    carries: bool = False


#: 0.02 nats make 0.1 nats the least rise of a loss, 0.15 is a factor of 2.1 for a norm: both as in the spike detector
SCALES = {
    "loss": Scale(floor=0.02, share=0.05, upward=True, carries=True),
    "grad_norm": Scale(log=True, floor=0.15, upward=True, carries=True),
    "tokens": Scale(log=True, floor=0.1),
    "supervised_ratio": Scale(floor=0.02),
    "longest": Scale(log=True, floor=0.1),
    "altered_ratio": Scale(floor=0.002, upward=True, carries=True),
}


@dataclass(frozen=True)
class Judged:
    """One number beside those of the ordinary batches.

    Attributes:
        value: of the batch. median, low, high: of the others.
        z: how far it lies out; infinite where it is not finite and they are.
        out: it is out of the ordinary.
    """

    value: float
    median: float
    low: float
    high: float
    z: float
    out: bool


def judge(name: str, value: float | None, others: Iterable[float | None]) -> Judged | None:
    """Compare one number; None where there is nothing to compare, or fewer than `FEWEST` finite others."""
    scale = SCALES[name]
    finite = [one for one in others if one is not None and math.isfinite(one)]
    if value is None or len(finite) < FEWEST:
        return None
    middle, low, high = _median(finite), min(finite), max(finite)
    if not math.isfinite(value):
        return Judged(value, middle, low, high, math.inf, True)
    z = _distance(scale, value, finite)
    return Judged(value, middle, low, high, z, z >= LIMIT or (not scale.upward and z <= -LIMIT))


def _distance(scale: Scale, value: float, others: list[float]) -> float:
    if scale.log:
        value, others = _log(value), [_log(one) for one in others]
    held = RollingMedian(len(others))
    held.replace(others)
    spread = max(_MAD_TO_SIGMA * held.mad(), scale.floor, scale.share * abs(held.median()))
    return (value - held.median()) / spread


def _median(values: list[float]) -> float:
    held = RollingMedian(len(values))
    held.replace(values)
    return held.median()


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))


def around(step: int, recorded: Iterable[int]) -> list[int]:
    """Steps to compare with, the nearest first, one of each side in turn where there are both."""
    return sorted((one for one in recorded if one != step), key=lambda one: (abs(one - step), one))
