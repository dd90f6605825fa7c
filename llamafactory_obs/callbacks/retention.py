"""Which checkpoints of a run are kept: the best by a metric and the newest that can be resumed from. Decides, deletes
nothing."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

_OPTIONS = {"k": int, "metric": str, "mode": str}


@dataclass(frozen=True)
class TopK:
    """The option `top_k`.

    Attributes:
        k: how many of the best are kept.
        metric: its name in the Trainer's evaluations, with or without `eval_`.
        mode: what is better.
    """

    k: int = 3
    metric: str = "eval_loss"
    mode: Literal["min", "max"] = "min"

    def value_in(self, metrics: dict) -> float | None:
        """The metric in one evaluation; None where it is not there or not finite."""
        value = metrics.get(self.metric, metrics.get(f"eval_{self.metric}"))
        known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if known else None


@dataclass(frozen=True)
class Candidate:
    """One checkpoint.

    Attributes:
        name, step: `checkpoint-N` and N.
        saved_at: when its state was written, Unix seconds.
        good: it is whole. resumes: training can go on from it.
        own: it is known to be of this run.
        value: of the metric, at its own step; None where it was not evaluated there.
    """

    name: str
    step: int
    saved_at: float
    good: bool
    resumes: bool
    own: bool
    value: float | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be done: name -> why it may go; and the names that are kept for being the best and the newest."""

    delete: dict[str, str]
    best: tuple[str, ...] = ()
    newest: tuple[str, ...] = ()


def plan(candidates: Collection[Candidate], top_k: TopK, protected: Collection[str] = ()) -> Plan:
    """Choose. What is broken, of another run, or of a run that is not known is never chosen, and counts as nothing.

    Args:
        protected: names that are kept whatever they are worth.
    """
    own = [one for one in candidates if one.good and one.own]
    ranked = [one for one in own if one.value is not None]
    if not ranked:
        return Plan({})
    sign = 1.0 if top_k.mode == "min" else -1.0
    best = sorted(ranked, key=lambda one: (sign * one.value, -one.step))[: top_k.k]
    newest = _newest([one for one in own if one.resumes] or own)
    keep = {one.name for one in (*best, *newest)} | set(protected)
    last = max(one.saved_at for one in newest)
    worst = best[-1].value
    gone = {
        one.name: _why(one, top_k, len(best), worst)
        for one in sorted(own, key=lambda one: one.step)
        if one.name not in keep and one.saved_at <= last
    }
    return Plan(gone, tuple(one.name for one in best), tuple(one.name for one in newest))


def _newest(candidates: list[Candidate]) -> list[Candidate]:
    """Saved last, and with the highest number: after a resume from an older one these may be two."""
    last = max(candidates, key=lambda one: (one.saved_at, one.step))
    highest = max(candidates, key=lambda one: one.step)
    return [last] if last is highest else [last, highest]


def _why(one: Candidate, top_k: TopK, kept: int, worst: float) -> str:
    if one.value is None:
        return f"{top_k.metric} was not evaluated at step {one.step}, and {kept} better known ones are kept"
    than = "above" if top_k.mode == "min" else "below"
    equal = one.value == worst
    word = "no better than" if equal else than
    return f"its {top_k.metric} {one.value:.6g} is {word} {worst:.6g}, the last of the best {kept}"


def parse_top_k(given: dict | None) -> TopK | None:
    """The option as it stands in the config.

    Raises:
        ValueError: an unknown key or a value that makes no sense.
    """
    if given is None:
        return None
    for key, value in given.items():
        if key not in _OPTIONS:
            raise ValueError(f"top_k takes k, metric and mode, not {key!r}")
        if not isinstance(value, _OPTIONS[key]) or isinstance(value, bool):
            raise ValueError(f"top_k: {key} must be {'a whole number' if key == 'k' else 'text'}, got {value!r}")
    metric = given.get("metric", "eval_loss")
    mode = given.get("mode", "min" if metric.endswith("loss") else "max")
    if given.get("k", 3) < 1:
        raise ValueError(f"top_k: k must be at least 1, got {given['k']}")
    if mode not in ("min", "max"):
        raise ValueError(f"top_k: mode must be min or max, got {mode!r}")
    return TopK(given.get("k", 3), metric, mode)
