"""Published spike rules, written as functions over a list of gradient norms: indices at which they alarm.

Only rules that apply to a gradient norm. Non-finite norms are skipped (None in the list); a rule sees the past only.
"""

import math
import statistics

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
