"""All detectors on one stream of rows: what `diagnose` says of a log, and what the callback `diagnose` says live."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from ..detect import (
    EpochStepsDetector,
    EvalTurnDetector,
    Finding,
    GrowthDetector,
    KlJumpDetector,
    LossShapeDetector,
    LossSpikeDetector,
    LowGpuUtilDetector,
    LrAnomalyDetector,
    NonFiniteDetector,
    PreferenceDetector,
    ResumeGapDetector,
    RewardCollapseDetector,
    SpikeDetector,
    StalledDetector,
    ThroughputDropDetector,
    ZeroLossDetector,
)
from ..detect.epoch_steps import stairs
from .causes.slow import COMPUTING
from .run_facts import RunFacts
from .settle import settle

#: names of older detectors -> names of `result.VERDICTS`
_NAMES = {
    "memory_growth": "vram_growth",
    "growth_over": "vram_growth_over",
    "low_gpu_util": "low_gpu_use",
    "gpu_util_back": "low_gpu_use_over",
    "finite_again": "nan_over",
    "learning_again": "stalled_over",
}
#: a state of the whole run: when it is over, nothing is left to say
_STATES = {"flat", "plateau", "jitter", "diverged", "overfit_suspect", "overfit", "resume_gap", "stalled"}


class Shapes:
    """Feed it the rows of one run in the order of training: `update` for each, `finish` at the end of the log.

    `update` and `finish` return what is new: a Finding that begins, changes its gravity, or is over (name ending in
    `_over`, level info). `findings()` is the present state: one Finding per episode, those that are over with `until`.
    Its names are those of `result.VERDICTS`, and beside them `grad_norm_spike`, `stalled`, `memorising`,
    `skipped_step`, `inf`, `kl_jump`, `reward_collapse`, `no_advantage`, `preference_flat`, `preference_reversed`,
    `chosen_falls`. The state is a function of the rows: to restore it, feed them again.
    """

    MEMORY = ("system/allocated_gib", "system/peak_allocated_gib", "system/peak_reserved_gib")

    def __init__(self, facts: RunFacts | None = None) -> None:
        self.facts = facts or RunFacts()
        self.run = 0  # how many restarts there were
        self._found: dict[tuple, Finding] = {}
        self._step: int | None = None
        self._starts: list[int] = []
        self._build()

    def _build(self) -> None:
        f = self.facts
        per_row = max(1, f.logging_steps)
        self.nonfinite, self.stalled = NonFiniteDetector(), StalledDetector()
        self.zero_loss, self.norm_spike = ZeroLossDetector(), SpikeDetector()
        self.loss_spike = LossSpikeDetector(logging_steps=per_row)
        self.shape = LossShapeDetector(logging_steps=per_row, max_steps=f.max_steps)
        self.epochs, self.resume = EpochStepsDetector(), ResumeGapDetector()
        self.rate = LrAnomalyDetector(max_steps=f.max_steps)
        self.speed = ThroughputDropDetector(steps_per_row=per_row, resolution=f.clock_s)
        self.memory = GrowthDetector(f.limit_gib, total_steps=f.max_steps)
        self.gpu = LowGpuUtilDetector(facts=f.idle)
        self.preference, self.kl, self.reward = PreferenceDetector(), KlJumpDetector(), RewardCollapseDetector()
        self.evals: dict[str, EvalTurnDetector] = {}
        self.loss_sum, self.loss_count, self._window = 0.0, 0, (None, None)
        fp16, bf16 = f.settings.get("fp16"), f.settings.get("bf16")
        self.scaler = True if fp16 is True else False if bf16 is True or fp16 is False else None

    def begin(self, start: str, facts: dict | None = None) -> None:
        """The next row is the first of another start of training: "resume" or "restart" (another run in the log)."""
        if start == "restart":
            self.finish()
            self.run += 1
            self._build()
            return
        self.resume.resume(facts)
        self.shape.resumed = True
        self.rate.restart()
        self.speed.restart()
        self._starts.append(-1)  # its step is that of the next row

    def arrive(self, step: int) -> None:
        """The log is at this step."""
        self._step = step
        if self._starts and self._starts[-1] < 0:
            self._starts[-1] = step

    def update(self, step: int, values: dict[str, float]) -> list[Finding]:
        """Takes one row: column -> number; a missing number is not in it or None, NaN and infinities are themselves."""
        self.arrive(step)
        get = values.get
        loss, lr, norm = get("train/loss"), get("train/lr"), get("train/grad_norm")
        found = [self.evaluation(step, name, values) for name in values if name[:5] == "eval/"]
        found.append(self.rate.update(step, lr))
        found.append(self._time(step, get))
        kind = self.facts.kind
        if kind == "rl":
            found += self.rewards(step, values)
        else:
            if loss is not None or norm is not None:
                self._loss(step, loss, lr, norm, get("train/epoch"), values, found)
            found += self.machine(step, values)
            if kind == "preference":
                self.pairs(step, values)
        found = [finding for finding in found if finding is not None]
        return self.note(found) if found else found

    def finish(self) -> list[Finding]:
        """The log ends here: judges what is open. More rows may follow after it."""
        if self._step is None:
            return []
        step = self._step
        found: list[Finding | None] = [self.resume.finish(step), *(one.finish() for one in self.evals.values())]
        if self.facts.kind != "rl":
            found += [self.loss_spike.finish(step), self.epochs.finish(step), *self.shape.finish(step)]
            borders = [at for at, _, _ in self.epochs.steps] + self._starts
            found.append(stairs(step, self.shape.store.all(), self.shape.store.size, borders))
        if self.facts.kind == "preference":
            found += self.preference.finish(step)
        return self.note(found)

    def findings(self) -> list[Finding]:
        """One Finding per episode, settled among each other (see `settle`)."""
        return settle(list(self._found.values()), max(1, self.facts.logging_steps))

    def rewards(self, step: int, values: dict[str, float]) -> list[Finding | None]:
        """The part of a row that says how reinforcement learning goes."""
        spread = _first(values, "reward_std", "rewards/std")
        found = [self.kl.update(step, _first(values, "kl", "objective/kl", "train/kl"))]
        found.append(self.reward.update(step, _first(values, "reward", "rewards/mean", "env/reward_mean"), spread))
        norm = values.get("train/grad_norm")
        return found if norm is None else [*found, self.nonfinite.update(step, norm, None, self.scaler)]

    def pairs(self, step: int, values: dict[str, float]) -> None:
        """The part of a row that says how preference training goes."""
        accuracy = _first(values, "rewards/accuracies", "accuracy")
        self.preference.update(step, accuracy, values.get("rewards/margins"), values.get("rewards/chosen"))

    def finite(self, step: int, values: dict[str, float]) -> Finding | None:
        """Loss and norm of a row: are they finite?"""
        skipped = values.get("train/step_skipped")
        scaler = True if skipped is not None else self.scaler
        told = None if skipped is None else skipped > 0
        return self.nonfinite.update(step, values.get("train/grad_norm"), values.get("train/loss"), scaler, told)

    def _loss(self, step, loss, lr, norm, epoch, values, found: list) -> None:
        found.append(self.finite(step, values))
        if norm is not None and "grad_norm" not in self.facts.leave_out:
            found.append(as_norm(self.norm_spike.update(step, norm, loss)))
            found.append(self.stalled.update(step, norm))
        if loss is not None or self.resume.is_open:
            found.append(self.resume.update(step, loss, lr, norm, epoch))
        if loss is None:
            return
        if math.isfinite(loss):
            self.loss_sum, self.loss_count = self.loss_sum + loss, self.loss_count + 1
        found.append(self.zero_loss.update(step, loss, norm))
        found.append(self.loss_spike.update(step, loss))
        found.append(self.epochs.update(step, loss, epoch))
        found += self.shape.update(step, loss, epoch, lr)

    def evaluation(self, step: int, name: str, values: dict) -> Finding | None:
        if not (name == "eval/loss" or name.endswith("_loss")) or self.facts.kind == "rl":
            return None
        which = name.removeprefix("eval/").removesuffix("loss").rstrip("_")
        if self._window[0] != step:
            mean = self.loss_sum / self.loss_count if self.loss_count else values.get("train/loss")
            self._window, self.loss_sum, self.loss_count = (step, mean), 0.0, 0
        detector = self.evals.get(name)
        if detector is None:
            detector = self.evals[name] = EvalTurnDetector(name=which)
        return detector.update(step, values[name], self._window[1])

    def _time(self, step: int, get) -> Finding | None:
        seconds = get("time/step_s")
        if seconds is None:
            seconds = get("time/per_step_s")
        if seconds is None:
            return None
        pause = bool(get("time/unusual") or get("time/eval_s") or get("time/checkpoint_s"))
        return self.speed.update(step, seconds, pause, waited(get))

    def machine(self, step: int, values: dict) -> list[Finding | None]:
        found: list[Finding | None] = []
        if "vram" not in self.facts.leave_out:
            held = _first(values, *self.MEMORY)
            if held is not None:
                found.append(self.memory.update(step, held, values.get("data/max_length")))
        util = values.get("system/gpu_util")
        if util is not None and "gpu_use" not in self.facts.leave_out:
            ours = {part: value for name, value in values.items() if (part := _part(name))}
            seconds, unusual = values.get("time/step_s"), bool(values.get("time/unusual"))
            found.append(self.gpu.update(step, seconds, util, ours, unusual))
        return found

    def note(self, found: list[Finding | None]) -> list[Finding]:
        """Keeps the state; returns what is new."""
        new = []
        for finding in found:
            if finding is None:
                continue
            name = _NAMES.get(finding.name, finding.name)
            if name != finding.name:
                finding = replace(finding, name=name)
            base, over = name.removesuffix("_over"), name.endswith("_over")
            key = self._key(base, finding)
            before = self._found.get(key)
            if over:
                if before is None:
                    continue
                new.append(finding)
                if base in _STATES:
                    del self._found[key]
                else:
                    self._found[key] = _closed(before, finding, base)
                continue
            finding = replace(finding, evidence={**finding.evidence, "run": self.run}) if self.run else finding
            self._found[key] = finding
            if before is None or (before.name, before.level, before.action) != (name, finding.level, finding.action):
                new.append(finding)
        return new

    def _key(self, base: str, finding: Finding) -> tuple:
        """Which episode a finding belongs to."""
        since = finding.evidence.get("since", finding.step)
        if "view" in finding.evidence and base == "low_gpu_use":
            return base, finding.evidence["view"], self.run
        if base in ("spike", "diverged") and finding.evidence.get("view") != "whole curve":
            return "spike", since, self.run
        if base in ("flat", "plateau", "jitter", "diverged", "overfit_suspect", "stairs", "overfit"):
            return base, "", self.run
        if base in ("nan", "inf") and finding.level != "warn":
            return "nan", since, self.run
        return base, since, self.run


def waited(get: Callable[[str], float | None]) -> float | None:
    """What a step took beside computing, seconds; None where its parts are not known.

    Args:
        get: column -> number of the row, None where it is missing.
    """
    parts = [get(name) for name in ("time/step_s", *COMPUTING)]
    return None if None in parts else parts[0] - sum(parts[1:])


def _closed(before: Finding, over: Finding, base: str) -> Finding:
    """An episode that is over, as one finding: where it began, and `until`."""
    until = over.until if over.until is not None else over.step
    evidence = {**before.evidence, **over.evidence}
    level = "info" if base == "spike" else before.level
    action = "keep" if base in ("spike", "zero_loss") else before.action
    name = "spike" if base == "spike" else before.name  # it had been called diverged
    return replace(before, name=name, level=level, text=over.text, evidence=evidence, until=until, action=action)


def as_norm(finding: Finding | None) -> Finding | None:
    """A spike of the gradient norm under a name of its own."""
    if finding is None:
        return None
    name = {"spike": "grad_norm_spike", "spike_over": "grad_norm_spike_over"}.get(finding.name)
    return None if name is None else replace(finding, name=name)


def _first(values: dict, *names: str) -> float | None:
    for name in names:
        value = values.get(name)
        if value is not None:
            return value
    return None


@functools.cache
def _part(name: str) -> str:
    """The part of a step that a column is of; "" for any other."""
    known = name.startswith("time/") and name.endswith("_s") and name not in ("time/step_s", "time/gc_s")
    return name.removeprefix("time/").removesuffix("_s") if known else ""
