"""Speed, memory, utilisation, data and losses of a run, out of its columns."""

import math
from itertools import compress
from statistics import fmean

from ..diagnosis.wanted import mask_range
from ..logs.curves import Curves
from .identity_facts import mappings, number, options, pick
from .loaded import Loaded
from .parts import Data, Memory, Spread, Why

_ENDS = 20
_PER_STEP, _STEP_S = "time/per_step_s", "time/step_s"


def values_of(curves: Curves, name: str) -> list[float]:
    """The finite values of a column; [] where it is not there."""
    column = curves.columns.get(name)
    if column is None:
        return []
    return [value for value in compress(column.values, column.present) if math.isfinite(value)]


def spread(values: list[float]) -> Spread | None:
    """Mean and percentiles (nearest rank); None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    at = [ordered[math.ceil(share * len(ordered)) - 1 if share * len(ordered) >= 1 else 0] for share in (0.05, 0.95)]
    return Spread(fmean(values), (ordered[last // 2] + ordered[(last + 1) // 2]) / 2, *at, len(ordered))


def step_seconds(curves: Curves) -> Spread | None:
    """Wall seconds of a step: measured, else by the log's clock."""
    return spread(values_of(curves, _STEP_S) or values_of(curves, _PER_STEP))


def tokens_per_s(curves: Curves) -> tuple[Spread | None, float | None]:
    """Of the steps, and all tokens over all seconds.

    The second is over the rows that have both the tokens and the seconds; without the tokens it is the mean of the
    steps' rates, weighted by their seconds.
    """
    rates = spread(values_of(curves, "system/tokens_per_sec"))
    seconds = curves.columns.get(_STEP_S) or curves.columns.get(_PER_STEP)
    tokens, rate = curves.columns.get("data/tokens"), curves.columns.get("system/tokens_per_sec")
    if seconds is None:
        return rates, None
    mine = tokens if tokens is not None else rate
    if mine is None:
        return rates, None
    done = passed = 0.0
    for value, there, s, timed in zip(mine.values, mine.present, seconds.values, seconds.present, strict=True):
        if there and timed and math.isfinite(value) and math.isfinite(s):
            done += value if tokens is not None else value * s
            passed += s
    return rates, done / passed if passed > 0 else None


def memory_of(loaded: Loaded) -> Memory:
    """The fullest moment; steps that a later start made again count too."""
    curves = loaded.curves

    def highest(name: str) -> float | None:
        seen = [one.highest[name] for one in loaded.stretches.values() if name in one.highest]
        return max(seen or values_of(curves, name), default=None)

    reserved = highest("system/peak_reserved_gib")
    limit, source = _limit(curves)
    return Memory(
        allocated_gib=highest("system/peak_allocated_gib"),
        reserved_gib=reserved,
        device_gib=highest("system/device_used_gib"),
        rss_gib=highest("system/rss_gib"),
        limit_gib=limit,
        limit_from=source,
        share=reserved / limit if reserved is not None and limit else None,
    )


def _limit(curves: Curves) -> tuple[float | None, str]:
    """What the run was to keep to, as `vram` takes it; else the size of the smallest card."""
    for value, source in (
        (options(curves.run, "vram").get("limit_gib"), "vram: limit_gib"),
        (pick(curves.run, "config", "given", "obs", "limit_gib"), "obs: limit_gib"),
    ):
        if number(value) is not None and value > 0:
            return float(value), source
    cards = mappings(curves.run, "hardware", "gpus")
    sizes = [size for card in cards if (size := number(card.get("memory_gib")))]
    return min(sizes, default=None), ""


def gpu_use(curves: Curves) -> tuple[float | None, float | None]:
    """Mean utilisation, weighted by the steps' seconds where they are measured, and the 5th percentile."""
    use, seconds = curves.columns.get("system/gpu_util"), curves.columns.get(_STEP_S)
    plain = spread(values_of(curves, "system/gpu_util"))
    if use is None or plain is None:
        return None, None
    if seconds is None:
        return plain.mean, plain.p5
    pairs = [(u, s) for u, s in zip(use, seconds, strict=True) if u is not None and s and math.isfinite(u + s)]
    whole = sum(s for _, s in pairs)
    return (sum(u * s for u, s in pairs) / whole if whole else plain.mean), plain.p5


def data_of(loaded: Loaded) -> Data:
    """What was in the batches. Ratios are of the sums, not means of the steps' ratios."""
    curves = loaded.curves
    names = ("tokens", "supervised_tokens", "samples", "cells", "truncated", "fully_masked")
    sums = {name: sum(values) if (values := values_of(curves, f"data/{name}")) else None for name in names}

    def share(part: str, whole: str) -> float | None:
        return sums[part] / sums[whole] if sums[part] is not None and sums[whole] else None

    filled = share("tokens", "cells")
    every = [one.tokens for one in loaded.stretches.values() if one.tokens is not None]
    return Data(
        tokens=_whole(sums["tokens"]),
        tokens_all=_whole(sum(every)) if every else _whole(sums["tokens"]),
        supervised_tokens=_whole(sums["supervised_tokens"]),
        samples=_whole(sums["samples"]),
        supervised_ratio=share("supervised_tokens", "tokens"),
        padding_ratio=None if filled is None else 1 - filled,
        truncated_ratio=share("truncated", "samples"),
        fully_masked=_whole(sums["fully_masked"]),
        wanted_ratio=mask_range(curves.run) if curves.run else None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def losses(curves: Curves) -> tuple[float, float] | None:
    """Mean of the first and of the last steps' training loss: up to 20, at most a tenth of the run."""
    values = values_of(curves, "train/loss")
    if not values:
        return None
    count = max(1, min(_ENDS, len(values) // 10))
    return fmean(values[:count]), fmean(values[-count:])


#: field -> the callback that writes it; those that only a GPU has
_WRITER = {"step_s": "throughput", "tokens_per_s": "throughput", "mean_tokens_per_s": "throughput"}
_WRITER |= {"gpu_util": "system", "memory.reserved_gib": "vram", "memory.allocated_gib": "vram"}
_OF_GPU = frozenset(("gpu_util", "memory.reserved_gib", "memory.allocated_gib"))


def missing_measures(loaded: Loaded, measured: dict[str, object]) -> dict[str, Why]:
    """Why a number is not there: the callback that would have written it (`label_mask` for what is not named here)."""
    curves, found = loaded.curves, {}
    no_gpu = pick(curves.run, "hardware", "gpu_count") == 0
    for field, value in measured.items():
        if value is not None or (field == "data.truncated_ratio" and curves.settings.get("stage") == "pt"):
            continue
        if field in _OF_GPU and no_gpu:
            found[field] = Why("no_gpu")
        elif loaded.record is None:
            found[field] = Why("no_record")
        elif len(curves) == 0:
            found[field] = Why("no_steps")
        else:
            found[field] = Why("no_callback", {"callback": _WRITER.get(field, "label_mask")})
    if 1 not in getattr(curves.columns.get("train/loss"), "present", ()):
        found["train_loss"] = Why("no_steps")
    return found
