"""What each layer of a step costs: the model on ready batches, then what the loader and the rest add to it."""

import math
import statistics
from dataclasses import dataclass

from ...texts import text
from .joined import Joined, Timed

#: a mean counts as seen when it is so many of its standard errors away from 0
_SURE = 2.0


@dataclass(frozen=True)
class Layer:
    """One layer of the whole run's mean step.

    Attributes:
        name: model | loader | callbacks | logging | evaluation | saving.
        seconds_per_step: what it adds; what happens now and then is spread over all steps.
        spread: first and third quartile over the measured steps or events; None where it was measured once.
        at_most: with 95 % certainty, where the noise hides the value itself; else None.
        detail: what it rests on, for people.
    """

    name: str
    seconds_per_step: float
    spread: tuple[float, float] | None = None
    at_most: float | None = None
    detail: str = ""


class Steps:
    """Means of the blocks.

    Args:
        joined: the measured steps.
        workers: of the config.
    """

    def __init__(self, joined: Joined, workers: int):
        self.joined = joined
        self.loaded, self.ready = joined.block(f"loader:{workers}"), joined.block("ready")
        self.cells = statistics.fmean(step.cells for step in self.loaded)
        self.tokens = statistics.fmean(step.tokens for step in self.loaded)
        self._by_index: dict[int, list[Timed]] = {}
        for step in self.ready:
            self._by_index.setdefault(step.index, []).append(step)
        self.model_s = self._scaled(statistics.fmean(step.whole for step in self.ready), self.ready)
        self._ready_wait = statistics.fmean(step.wait for step in self.ready)

    @property
    def noise_s(self) -> float:
        """Standard error of `model_s`: from the difference of two passes over the same batches."""
        pairs = [one for one in self._by_index.values() if len(one) > 1]
        if len(pairs) < 2:
            return math.nan
        differences = [pair[0].whole - pair[1].whole for pair in pairs]
        return math.sqrt(statistics.fmean(d * d for d in differences) / 2 / (2 * len(pairs)))

    def model(self) -> Layer:
        """Forward, backward, update and the Trainer itself."""
        values = [step.whole for step in self.ready]
        return Layer("model", self.model_s, _quartiles(values), None, text("speed.layers.ready", count=len(values)))

    def loader(self, block: list[Timed], workers: int) -> Layer:
        """The wait for data, and what the model loses while worker processes run beside it."""
        waits = [step.wait - self._ready_wait for step in block]
        mean, error = _mean(waits)
        slower = self._slower(block) if workers else 0.0
        detail = (
            text("speed.layers.many", count=len(block), workers=workers)
            if workers != 1
            else text("speed.layers.one", count=len(block))
        )
        if slower:
            detail += text("speed.layers.shared", share=slower / self.model_s)
        hidden = mean < _SURE * error
        total = max(mean, 0.0) + slower
        return Layer("loader", total, _quartiles(waits), total + _SURE * error if hidden else None, detail)

    def _slower(self, block: list[Timed]) -> float:
        """Seconds by which computing is slower than on ready batches, where that is beyond the noise; else 0."""
        expected = [self._expected(step) for step in block]
        mean, error = _mean([step.compute - one for step, one in zip(block, expected, strict=True)])
        noise = self.noise_s if math.isfinite(self.noise_s) else 0.0
        return mean if mean > _SURE * math.hypot(error, noise) else 0.0

    def _expected(self, step: Timed) -> float:
        same = [one.compute for one in self._by_index.get(step.index, ()) if one.cells == step.cells]
        return statistics.fmean(same) if same else self.model_s * (step.cells / self.cells if self.cells else 1.0)

    def callbacks(self, costs: dict[str, float], names: list[str]) -> Layer | None:
        """The config's own callbacks; None where it has none of ours."""
        named, total = {name: costs.get(name, 0.0) for name in names if name in costs}, sum(costs.values())
        if not named or total <= 0:
            return None
        values = [step.callbacks * sum(named.values()) / total for step in self.ready]
        dearest = max(named, key=named.get)
        return Layer(
            "callbacks", statistics.fmean(values), _quartiles(values), None, text("speed.layers.most", dearest=dearest)
        )

    def logging(self, every: int) -> Layer | None:
        """What a log adds to the Trainer's own time, spread over `every` steps."""
        logged = [row["time/other_s"] for row in self.joined.after("log")]
        if not logged:
            return None
        with_log, error = _mean(logged)
        without, other = _mean([step.other for step in self.ready])
        mean, error = with_log - without, math.hypot(error, other)
        hidden = mean < _SURE * error
        at_most = (max(mean, 0.0) + _SURE * error) / every if hidden else None
        spread = tuple((quartile - without) / every for quartile in _quartiles(logged))
        return Layer(
            "logging", max(mean, 0.0) / every, spread, at_most, text("speed.layers.each", time=_short(max(mean, 0.0)))
        )

    def _scaled(self, seconds: float, block: list[Timed]) -> float:
        """Seconds for the mean step of the loader's block; the ready batches may be a part of it."""
        cells = statistics.fmean(step.cells for step in block)
        return seconds * self.cells / cells if cells else seconds


def occasional(name: str, seconds: float, times: float, steps: int, detail: str) -> Layer:
    """A layer of something that happens some times in the whole run."""
    return Layer(name, seconds * times / max(steps, 1), None, None, detail)


def _mean(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error; of a single value as large as itself."""
    if len(values) < 2:
        return (values[0], abs(values[0])) if values else (0.0, 0.0)
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0], values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _short(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
