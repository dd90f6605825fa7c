"""Spikes of the gradient norm, judged against the run's own recent level."""

import math
from collections import deque
from collections.abc import Sequence

from .finding import Finding, Level
from .numbers import as_number, plain
from .rolling import RollingMedian

_RANK = {"": 0, "warn": 1, "error": 2}
_MAD_TO_SIGMA = 1.4826  # MAD of a normal distribution times this is its standard deviation
_LIMITS = (
    "The norm alone is noisy and says little about the outcome; a norm above max_grad_norm is normal, because it is "
    "measured before clipping. A slow drift is followed as the new level and not reported."
)


class SpikeDetector:
    """Finds spikes in the gradient norm before clipping, one value per optimizer step.

    With y = ln(norm), m = median and s = max(1.4826 MAD, `scale_floor`) of the last `window` accepted y:
    a step is spiked when y - m >= ln(`ratio`) and (y - m) / s >= `z`. Before `warmup` values are known the ratio is
    `early_ratio`; before `min_history` nothing is judged. Robust z in the log domain after the rules of trainscope and
    ftdoctor; the ratio keeps a run with a very even norm quiet, the z one with a wild norm.

    A spiked step opens an episode. It stays open until `calm` steps in a row are below `exit_ratio` x baseline; steps
    above that are no part of the baseline. Reported once per episode and level:
      warn   the norm alone
      error  the norm alone, by `huge_ratio` or more; or `persist` steps in a row that do not come back; or, where
             `loss` is given, a loss rise on a step of the excursion or up to `loss_lag` steps after it
      info   "spike_over" after an error has come back; "new_level" when `accept_after` steps stayed up: they become the
             baseline, so that a lasting level does not alarm for ever. Before `warmup`, `persist` steps in a row do.
    The norm alone is not reported again within `memory` steps unless it is higher than before.
    A loss rise is loss - median >= max(`loss_z` x 1.4826 MAD, `loss_rise`), in nats, over the last `loss_window`
    accepted losses (short, because a falling loss leaves its median behind). With a loss rise on the same step,
    `coupled_ratio` and `coupled_z` are enough for a spike. 0.1 nats is the absolute floor without which the relative
    jumps of a memorising run (loss 0.002) alarm. docs/spike_rule.md tells how the defaults were chosen.

    Norms that are missing, non-finite, zero or negative are not judged and change nothing: other detectors do that.
    """

    def __init__(
        self,
        *,
        window: int = 64,
        min_history: int = 3,
        warmup: int = 12,
        z: float = 5.0,
        ratio: float = 3.0,
        early_ratio: float = 8.0,
        scale_floor: float = 0.15,
        huge_ratio: float = 100.0,
        persist: int = 4,
        exit_ratio: float = 2.0,
        calm: int = 8,
        accept_after: int = 20,
        memory: int = 200,
        coupled_ratio: float = 2.5,
        coupled_z: float = 3.5,
        loss_window: int = 16,
        loss_z: float = 3.0,
        loss_rise: float = 0.1,
        loss_lag: int = 2,
    ) -> None:
        if not 1 < exit_ratio <= ratio <= early_ratio <= huge_ratio:
            raise ValueError("wanted 1 < exit_ratio <= ratio <= early_ratio <= huge_ratio")
        if not 1 <= min_history <= warmup <= window:
            raise ValueError("wanted 1 <= min_history <= warmup <= window")
        self.window = window
        self.min_history, self.warmup, self.z, self.scale_floor = min_history, warmup, z, scale_floor
        self.ratio, self.early_ratio, self.huge_ratio, self.exit_ratio = ratio, early_ratio, huge_ratio, exit_ratio
        self.persist, self.calm, self.accept_after, self.memory = persist, calm, accept_after, memory
        self.coupled_ratio, self.coupled_z = coupled_ratio, coupled_z
        self.loss_z, self.loss_rise, self.loss_lag = loss_z, loss_rise, loss_lag
        self._norms = RollingMedian(window)  # ln(norm) of accepted steps
        self._losses = RollingMedian(loss_window)
        self._reported_peak = 0.0  # highest norm of the reported episodes
        self._reported_age = 0  # judged steps since the last report
        self._close(deque(maxlen=window))

    def _close(self, values: deque[float]) -> None:
        """No episode is open any more; `values` is the (emptied) store for the ln(norm) of the next one."""
        values.clear()
        self._values = values
        self._start: int | None = None
        self._level = ""
        self._peak = 0.0
        self._up_run = self._up_total = self._calm_run = 0

    def update(self, step: int, norm: float | None, loss: float | None = None) -> Finding | None:
        """Takes the norm before clipping and, optionally, the training loss of the same step (mean over the ranks)."""
        norm, loss = as_number(norm), as_number(loss)
        if norm is None or not math.isfinite(norm) or norm <= 0:
            return None
        if loss is not None and not math.isfinite(loss):
            loss = None
        y = math.log(norm)
        count = len(self._norms)
        if count < self.min_history:
            self._accept(y, loss)
            return None
        self._reported_age += 1
        median = self._norms.median()
        above = y - median
        z = above / max(_MAD_TO_SIGMA * self._norms.mad(), self.scale_floor)
        early = count < self.warmup
        loss_base, loss_up = self._judge_loss(loss)
        spiked = above >= math.log(self.early_ratio if early else self.ratio) and z >= self.z
        if loss_up and not early and above >= math.log(self.coupled_ratio) and z >= self.coupled_z:
            spiked = True
        if self._start is None and not spiked:
            self._accept(y, loss)
            return None
        if self._start is None:
            self._start = step
        evidence = {
            "norm": plain(norm),
            "baseline": plain(math.exp(median)),
            "ratio": plain(math.exp(above)),
            "z": plain(z, 4),
            "window": count,
            "loss": plain(loss),
            "loss_baseline": plain(loss_base),
            "since": self._start,
        }
        self._values.append(y)
        if spiked or above >= math.log(self.exit_ratio):
            self._up_run, self._calm_run = self._up_run + 1, 0
            self._up_total += 1
            self._peak = max(self._peak, norm)
            if self._level:
                self._reported_peak = max(self._reported_peak, norm)
        else:
            self._up_run, self._calm_run = 0, self._calm_run + 1
            self._accept(y, loss)
        if self._up_total >= self.accept_after or (early and self._up_run >= self.persist):
            return self._take_level(step, evidence)
        if self._calm_run >= self.calm:
            return self._end(step, evidence)
        reason = self._error_reason(spiked, above, early, loss_up)
        return self._report(step, norm, spiked, reason, evidence)

    @property
    def is_open(self) -> bool:
        """Whether an episode is open."""
        return self._start is not None

    def skip(self, logs: Sequence[float], losses: Sequence[float], count: int) -> None:
        """Takes `count` steps that are known to be no spike.

        Args:
            logs: ln(norm) of the last of them, at least `window` where there are so many.
            losses: the last finite losses of them, at least `loss_window` where there are so many.
        """
        self._norms.extend(logs)
        self._losses.extend(losses)
        self._reported_age += count

    def _accept(self, y: float, loss: float | None) -> None:
        self._norms.push(y)
        if loss is not None:
            self._losses.push(loss)

    def _judge_loss(self, loss: float | None) -> tuple[float | None, bool]:
        """The loss baseline, and whether this loss is clearly above it."""
        if len(self._losses) < self.min_history:
            return None, False
        base = self._losses.median()
        margin = max(self.loss_z * _MAD_TO_SIGMA * self._losses.mad(), self.loss_rise)
        return base, loss is not None and loss - base >= margin

    def _error_reason(self, spiked: bool, above: float, early: bool, loss_up: bool) -> str:
        if loss_up and self._calm_run <= self.loss_lag:
            return "loss"
        if self._up_run >= self.persist and not early:
            return "lasting"
        return "huge" if spiked and above >= math.log(self.huge_ratio) else ""

    def _report(self, step: int, norm: float, spiked: bool, reason: str, evidence: dict) -> Finding | None:
        """A finding if this step is worse than what the episode has reported so far."""
        level: Level = "error" if reason else "warn"
        if not (spiked or reason) or _RANK[level] <= _RANK[self._level]:
            return None
        alone = reason in ("", "huge")
        if self._reported_age > self.memory:
            self._reported_peak = 0.0
        if alone and not self._level and norm <= self._reported_peak:
            return None  # the run is known to throw spikes of this height; a loss rise would still be reported
        self._level, self._reported_peak, self._reported_age = level, max(self._reported_peak, norm), 0
        usual = evidence["baseline"]
        text = f"Gradient norm {norm:.4g} at step {step}, {norm / usual:.3g} times its usual {usual:.3g}. "
        if reason in ("lasting", "loss"):
            text = f"The gradient norm is up since step {self._start} (peak {self._peak:.4g}, usual {usual:.3g}) and "
        text += {
            "": "One such step seldom does harm; look at its samples if it comes again.",
            "huge": "Look at the samples of this step, and keep the checkpoint before it.",
            "lasting": "does not come back. Lower the learning rate, or go back to the checkpoint before that step.",
            "loss": f"the loss rose with it, to {evidence['loss']} from {evidence['loss_baseline']}. Keep the "
            "checkpoint before that step, and stop if the loss does not come back.",
        }[reason]
        evidence["reason"] = reason or "norm"
        return Finding("spike", level, step, text, evidence, "keep", {}, _LIMITS)

    def _take_level(self, step: int, evidence: dict) -> Finding | None:
        """The excursion has become the normal state: judge against it from now on."""
        said, start = self._level, self._start
        self._norms.replace(self._values)
        self._close(self._values)
        if said != "error":
            return None
        text = (
            f"The gradient norm has stayed up since step {start}; from step {step} on it is judged against this new "
            f"level of about {math.exp(self._norms.median()):.3g}. Check that the loss still falls."
        )
        return Finding("new_level", "info", step, text, evidence, "keep", {}, _LIMITS)

    def _end(self, step: int, evidence: dict) -> Finding | None:
        said, start, peak = self._level, self._start, self._peak
        self._close(self._values)
        if said != "error":
            return None
        text = (
            f"The gradient norm spike that began at step {start} (peak {peak:.4g}) is over: back to about "
            f"{evidence['baseline']:.3g} at step {step}. Nothing to do if the loss is back as well."
        )
        return Finding("spike_over", "info", step, text, {**evidence, "peak": plain(peak)}, "none", {}, _LIMITS)
