"""A GPU that has too little to do, and what the parts of the steps say about why."""

import math
from collections import deque

from .finding import Finding
from .idle_reason import Facts, explain
from .numbers import as_number, plain

_LIMITS = (
    "Utilisation is the share of time in which any kernel ran, by any process on the card: a high one does not mean"
    " that the card is used well. NVML means it over 1/6 to 1 second. The reason is what the step's parts support, not"
    " a proof."
)
#: parts that are no training: what runs in them is judged as their share of the time
_NOT_TRAINING = ("eval", "checkpoint")
_OF_RUN = ("seconds", "util", *_NOT_TRAINING)
#: so many of them, and this share of the time
_BREAKS, _SHARE = 3, 0.1


class LowGpuUtilDetector:
    """Finds a utilisation below `threshold`. All means are weighted by the steps' time.

    Two views, each reported once and closed by the info "gpu_util_back" at `threshold` + `margin`:
      training   the steps without an evaluation or a checkpoint, the last `min_seconds` and `min_steps` of them
      whole run  all steps so far, where training itself is busy enough: an evaluation a thousand steps apart fills any
                 short window, so evaluations and checkpoints are judged by their share of the whole time. It must be a
                 tenth, from at least 3 of them
    The first `warmup` steps are not looked at.

    Args:
        threshold: 0..1.
        facts: what is known of the run beside its rows, for the advice.
    """

    def __init__(
        self,
        threshold: float = 0.8,
        *,
        facts: Facts | None = None,
        min_seconds: float = 60.0,
        min_steps: int = 10,
        warmup: int = 5,
        margin: float = 0.03,
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, got {threshold}")
        if min_steps < 1 or min_seconds < 0:
            raise ValueError("min_steps must be at least 1 and min_seconds not negative")
        self.threshold, self.facts = threshold, facts or Facts()
        self.min_seconds, self.min_steps = min_seconds, min_steps
        self._back_at = min(1.0, threshold + margin)
        self._warmup = warmup
        self._window: deque[dict[str, float]] = deque()
        self._training: dict[str, float] = {"seconds": 0.0, "util": 0.0}
        self._run: dict[str, float] = {"seconds": 0.0, "util": 0.0}
        self._breaks = 0
        self._since: dict[str, int] = {}

    def update(
        self, step: int, seconds: float | None, util: float | None, parts: dict[str, float], unusual: bool = False
    ) -> Finding | None:
        """Takes one step.

        Args:
            seconds: its wall time.
            util: the card's utilisation over it, 0..1.
            parts: part of the step -> seconds, as `throughput` writes them; none without it. The names of `Facts.MEANS`
                are means over the step instead.
            unusual: an evaluation or a checkpoint is known to fall into the step, also where `parts` do not say so.
        """
        seconds, util = as_number(seconds), as_number(util)
        if util is None or seconds is None or not math.isfinite(seconds + util) or seconds <= 0:
            return None
        if self._warmup > 0:
            self._warmup -= 1
            return None
        entry = {"seconds": seconds, "util": util * seconds}
        for name, value in parts.items():
            if type(value) is not float:
                value = as_number(value)
            if value is not None and math.isfinite(value):
                entry[name] = value * seconds if name in Facts.MEANS else value
        for name in _OF_RUN:
            if name in entry:
                self._run[name] = self._run.get(name, 0.0) + entry[name]
        if unusual or any(entry.get(part) for part in _NOT_TRAINING):
            self._breaks += 1
        else:
            self._push(entry)
        return self._judge_training(step) or self._judge_run(step)

    def _push(self, entry: dict[str, float]) -> None:
        self._window.append(entry)
        _add(self._training, entry)
        while len(self._window) > self.min_steps:
            if self._training["seconds"] - self._window[0]["seconds"] < self.min_seconds:
                break
            _add(self._training, self._window.popleft(), -1.0)

    def _judge_training(self, step: int) -> Finding | None:
        sums = self._training
        if len(self._window) < self.min_steps or sums["seconds"] < self.min_seconds:
            return None
        mean = sums["util"] / sums["seconds"]
        if "training" in self._since:
            return self._back(step, "training", mean)
        if mean >= self.threshold:
            return None
        what = f"{mean:.0%} over the last {len(self._window)} steps ({sums['seconds']:.0f} s)"
        return self._low(step, "training", mean, what, _shares(sums))

    def _judge_run(self, step: int) -> Finding | None:
        sums = self._run
        mean = sums["util"] / sums["seconds"]
        if "run" in self._since:
            return self._back(step, "run", mean)
        beside = {part: sums.get(part, 0.0) / sums["seconds"] for part in _NOT_TRAINING}
        enough = self._breaks >= _BREAKS and sums["seconds"] >= self.min_seconds and len(self._window) >= self.min_steps
        if "training" in self._since or not enough or sum(beside.values()) < _SHARE or mean >= self.threshold:
            return None
        if self._training["util"] / self._training["seconds"] < self.threshold:
            return None  # the other view's matter, once its window is full
        largest = max(beside, key=beside.__getitem__)
        return self._low(step, "run", mean, f"{mean:.0%} since the start of training", {largest: sum(beside.values())})

    def _low(self, step: int, view: str, mean: float, what: str, shares: dict[str, float]) -> Finding:
        self._since[view] = step
        reason = explain(shares, self.facts)
        text = f"GPU utilisation is {what}, wanted {self.threshold:.0%}. {reason.text}"
        evidence = {"util": plain(mean), "threshold": self.threshold, "view": view, "reason": reason.name}
        evidence["shares"] = {name: plain(share) for name, share in shares.items()}
        return Finding("low_gpu_util", "warn", step, text, evidence, "keep", reason.suggest, _LIMITS)

    def _back(self, step: int, view: str, mean: float) -> Finding | None:
        if mean < self._back_at:
            return None
        since = self._since.pop(view)
        text = f"GPU utilisation is {mean:.0%} again; it was under {self.threshold:.0%} since step {since}."
        evidence = {"util": plain(mean), "view": view, "since": since}
        return Finding("gpu_util_back", "info", step, text, evidence, "keep", {}, _LIMITS)


def _add(sums: dict[str, float], entry: dict[str, float], sign: float = 1.0) -> None:
    for name, value in entry.items():
        sums[name] = sums.get(name, 0.0) + sign * value


def _shares(sums: dict[str, float]) -> dict[str, float]:
    seconds = sums["seconds"]
    return {name: max(0.0, value) / seconds for name, value in sums.items() if name not in ("seconds", "util")}
