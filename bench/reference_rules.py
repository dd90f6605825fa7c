"""Published spike rules, written as functions over a list of gradient norms or losses: indices at which they alarm.

The first four are used on gradient norms, all of them on losses. Non-finite norms are skipped (None in the list); a
rule sees the past only.
"""

import math
import statistics
from collections.abc import Callable

import numpy as np

Norms = list[float | None]
MAD_TO_SIGMA = 1.4826


def zclip(norms: Norms) -> list[int]:
    """ZClip: mean and variance from 25 steps, then EMA 0.97 of the clipped values; alarm at z > 2.5."""
    alarms, start, mean, var = [], [], 0.0, 0.0
    for i, g in enumerate(norms):
        if g is None:
            continue
        if len(start) < 25:
            start.append(g)
            mean = statistics.fmean(start)
            var = statistics.fmean((v - mean) ** 2 for v in start)
            continue
        sd = math.sqrt(var)
        z = (g - mean) / (sd + 1e-6)
        if z > 2.5:
            alarms.append(i)
            g = mean + 2.5 * sd / (z / 2.5)
        var = 0.97 * var + 0.03 * (g - mean) ** 2
        mean = 0.97 * mean + 0.03 * g
    return alarms


def olmo_core(norms: Norms) -> list[int]:
    """OLMo-core SkipStepOptimizer on the norm: more than 6 std above the mean of the last 128, from 64 on."""
    alarms, past = [], []
    for i, g in enumerate(norms):
        if g is None:
            continue
        if len(past) >= 64:
            mean = statistics.fmean(past)
            if g - mean > 6 * math.sqrt(sum((v - mean) ** 2 for v in past) / (len(past) - 1)):
                alarms.append(i)
        past = [*past, g][-128:]
    return alarms


def ftdoctor_like(norms: Norms) -> list[int]:
    """After ftdoctor: above 10 x the rolling median and robust z > 8, the first 5 left out; made causal, window 25."""
    alarms, past = [], []
    for i, g in enumerate(norms):
        if g is None:
            continue
        if len(past) >= 5:
            median = statistics.median(past)
            scale = MAD_TO_SIGMA * statistics.median(abs(v - median) for v in past)
            if g > 10 * median and g - median > 8 * scale:
                alarms.append(i)
        past = [*past, g][-25:]
    return alarms


def robust_z(norms: Norms) -> list[int]:
    """trainscope's plain rule: (x - median) / (1.4826 MAD) > 3.5 over the last 200, from 30 on."""
    alarms, past = [], []
    for i, g in enumerate(norms):
        if g is None:
            continue
        if len(past) >= 30:
            median = statistics.median(past)
            scale = MAD_TO_SIGMA * statistics.median(abs(v - median) for v in past)
            if g - median > 3.5 * scale:
                alarms.append(i)
        past = [*past, g][-200:]
    return alarms


def merged(alarms: list[int], apart: int = 10) -> list[int]:
    """Alarms at most `apart` rows after the one before count once."""
    return [i for before, i in zip([-math.inf, *alarms], alarms, strict=False) if i - before > apart]


def _window_rule(size: int, first: int, is_alarm) -> Callable[[Norms], list[int]]:
    """A rule on one value and the last `size` values, from `first` of them on."""

    def rule(values: Norms) -> list[int]:
        alarms, past = [], []
        for i, x in enumerate(values):
            if x is None:
                continue
            if len(past) >= first and is_alarm(x, past):
                alarms.append(i)
            past = [*past[1 - size :], x]
        return alarms

    return rule


def _sigmas(times: float, size: int = 1000, first: int = 32) -> Callable[[Norms], list[int]]:
    """More than `times` standard deviations above the mean of the last `size` values."""

    def rule(values: Norms) -> list[int]:
        there = [i for i, x in enumerate(values) if x is not None]
        x = np.array([values[i] for i in there])
        sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (x, x * x))
        n = np.minimum(np.arange(len(x)), size)
        start = np.arange(len(x)) - n
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (sums[:-1] - sums[start]) / n
            sigma = np.sqrt(np.maximum((squares[:-1] - squares[start]) / n - mean**2, 0))
            return [there[i] for i in np.flatnonzero((n >= first) & (x - mean > times * sigma))]

    return rule


#: on a loss. OLMo 2 spike score: 7 sigma over 1000; AdaGC's: 10 sigma over 1000
olmo2_score = _sigmas(7)
adagc_score = _sigmas(10)
#: Lightning SpikeDetection: above the last value and 3 times the mean of 10
lightning = _window_rule(
    10, 10, lambda x, past: x > past[-1] and x - statistics.fmean(past) >= 2 * statistics.fmean(past)
)
#: guarftrain: above 1.5 times the mean of a sliding window
guarftrain = _window_rule(10, 10, lambda x, past: x > 1.5 * statistics.fmean(past))
#: trainpulse: above 5 times the rolling mean
trainpulse = _window_rule(50, 10, lambda x, past: x > 5 * statistics.fmean(past))
#: losslint 0.4.1, made causal: above 10 times the median of the last 25
losslint_rule = _window_rule(25, 5, lambda x, past: x > 10 * statistics.median(past))


def ftdoctor_loss(values: Norms) -> list[int]:
    """ftdoctor 0.1.0 on the loss, made causal (window 25): above 1.8 times the median and robust z > 6."""

    def is_alarm(x: float, past: list[float]) -> bool:
        middle = statistics.median(past)
        scale = MAD_TO_SIGMA * statistics.median(abs(v - middle) for v in past)
        return x > 1.8 * middle and x - middle > 6 * scale

    return _window_rule(25, 5, is_alarm)(values)


def llm_foundry(values: Norms) -> list[int]:
    """llm-foundry KillLossSpike: five in a row at twice the mean of the last 100."""
    alarms, past, run = [], [], 0
    for i, x in enumerate(values):
        if x is None:
            continue
        if len(past) == 100:
            run = run + 1 if x >= 2 * statistics.fmean(past) else 0
            if run == 5:
                alarms.append(i)
        past = [*past[-99:], x]
    return alarms


def megatron(values: Norms) -> list[int]:
    """Megatron's rerun machine: 10 times the largest of the first 100, which is frozen then."""
    known = [x for x in values[:100] if x is not None]
    return [i for i, x in enumerate(values) if i >= 100 and x is not None and x >= 10 * max(known, default=math.inf)]


def trainscope_cusum(values: Norms) -> list[int]:
    """trainscope 1.8.1: CUSUM (k 1, h 6) on the robust z-score over the last 200, from 30 on; upward."""
    alarms, past, total = [], [], 0.0
    for i, x in enumerate(values):
        if x is None:
            continue
        if len(past) >= 30:
            middle = statistics.median(past)
            scale = MAD_TO_SIGMA * statistics.median(abs(v - middle) for v in past) or 1e-12
            total = max(0.0, total + (x - middle) / scale - 1.0)
            if total > 6.0:
                alarms.append(i)
                total = 0.0
        past = [*past[-199:], x]
    return alarms


def two_speeds(values: Norms) -> list[int]:
    """The rule that ours must beat: robust z on ln(loss), one row (z > 6, x 1.5) or CUSUM (0.75, 8; x 1.15)."""
    alarms, ys, moves, total = [], [], [], 0.0
    recent: list[float] = []
    for i, x in enumerate(values):
        if x is None or x <= 0:
            continue
        y = math.log(x)
        recent = [*recent[-4:], y]
        if len(ys) >= 12:
            m = statistics.median(ys[-32:])
            middle = statistics.median(moves)
            s = max(MAD_TO_SIGMA * statistics.median(abs(v - middle) for v in moves) / math.sqrt(2), 0.03)
            z = (y - m) / s
            total = max(0.0, total + min(z, 4.0) - 0.75)
            if total >= 8 and statistics.median(recent) - m > math.log(1.15):
                alarms.append(i)
                total = 0.0
            if z > 6 and y - m > math.log(1.5):
                alarms += [i] if not alarms or alarms[-1] != i else []
                continue
        if ys:
            moves = [*moves[-127:], y - ys[-1]]
        ys = [*ys[-127:], y]
    return alarms
