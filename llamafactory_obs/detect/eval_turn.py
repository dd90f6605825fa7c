"""Where the evaluation loss turned for good, beyond its own noise."""

import math
from itertools import pairwise
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "A small or unlike evaluation set rises for reasons of its own, and a task can get better while the loss rises: "
    "ask the checkpoints (probe) before one is chosen."
)


class EvalTurnDetector:
    """Finds an evaluation loss that stays above its best by more than its noise while the training loss falls.

    Noise band: max(2 sigma, 1 % of the best), sigma that of the difference between neighbouring evaluations, as in
    ftdoctor's survey. A trend is in these differences too, so sigma is the median of how much they change where they
    turn (0 where they do not): for pure noise that is about sigma. Where any of the last `LATE` turn, the median of
    these turns alone counts, about twice sigma: the best is then the lowest of many noisy ones. At least `least`
    evaluations after the best one must be there and the last `least` all above the band, the last one by a fifth of it
    more; the training loss, where it is known, must have fallen since the best one by half a band.
    Reported once per best; a new best closes it with "overfit_over". A non-finite evaluation loss beside a finite
    training loss is the finding "nan" (keep): only the evaluation is broken.

    Args:
        least: evaluations.
        name: of the evaluation set.
    """

    LATE = 8

    def __init__(self, *, least: int = 2, name: str = "") -> None:
        if least < 1:
            raise ValueError("least must be at least 1")
        self.least, self.name = least, name
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self.evals: list[tuple[int, float, float | None]] = []
        self._best = 0
        self._reported = False
        self._bad_since: int | None = None

    def update(self, step: int, loss: float | None, train: float | None) -> Finding | None:
        """Takes one evaluation, and the mean training loss since the one before (None where it is not known)."""
        loss, train = as_number(loss), as_number(train)
        if loss is None:
            return None
        if not math.isfinite(loss):
            return self._not_finite(step, loss, train)
        if self.evals and self.evals[-1][0] == step:
            return None  # the evaluation after the end, once more
        if len(self.evals) == 512:  # bounded: every second one of the older half goes
            best = self.evals[self._best]
            self.evals = [*self.evals[:256:2], *self.evals[256:]]
            self.evals = sorted({*self.evals, best})
            self._best = self.evals.index(best)
        self.evals.append((step, loss, train))
        if loss < self.evals[self._best][1]:
            self._best = len(self.evals) - 1
            return self._over(step, loss)
        return None if self._reported else self._judge(step, loss, train)

    def finish(self) -> Finding | None:
        """The log ends here: what has been reported, with the newest numbers."""
        return self._judge(*self.evals[-1]) if self._reported else None

    def _band(self) -> float:
        losses = [loss for _, loss, _ in self.evals]
        before = [b - a for a, b in pairwise(losses[: self._best + 1])]
        after = [b - a for a, b in pairwise(losses[self._best :])]
        turns = [abs(b - a) if a * b < 0 else 0.0 for part in (before, after) for a, b in pairwise(part)]
        sigma = median(turns) if turns else 0.0
        late = [turn for turn in turns[-self.LATE :] if turn]
        if late:  # it goes up and down: the best is then the lowest of many draws
            sigma = max(sigma, median(late))
        return max(2 * sigma, 0.01 * losses[self._best])

    def _judge(self, step: int, loss: float, train: float | None) -> Finding | None:
        after = self.evals[self._best + 1 :]
        if len(after) < self.least:
            return None
        best_step, best, train_then = self.evals[self._best]
        if best == 0:  # no share of it can be told, and a loss of 0 is broken (all labels masked)
            return None
        band, recent = self._band(), [value for _, value, _ in after[-self.least :]]
        if min(recent) <= best + band or loss <= best + 1.2 * band:
            return None
        if train is not None and train_then is not None and train > train_then * (1 - 0.5 * band / best):
            return None
        self._reported = True
        of = f" of {self.name}" if self.name else ""
        text = (
            f"The evaluation loss{of} was best at step {best_step} ({best:.4g}) and is {loss:.4g} at step {step}, "
            f"{loss / best - 1:.1%} above (noise band {band / best:.1%})"
        )
        text += f", while the training loss fell from {train_then:.4g} to {train:.4g}" if train and train_then else ""
        text += f": over-fitting. Take the checkpoint of step {best_step} or the last one before it."
        evidence = {
            "since": best_step,
            "best": plain(best),
            "best_step": best_step,
            "eval_loss": plain(loss),
            "band": plain(band, 3),
            "evaluations_since": len(after),
            "train_loss_then": plain(train_then),
            "train_loss": plain(train),
        }
        sure = 0.9 if loss > best + 3 * band else 0.75
        return Finding("overfit", "warn", step, text, evidence, "keep", {}, _LIMITS, None, sure)

    def _over(self, step: int, loss: float) -> Finding | None:
        if not self._reported:
            return None
        self._reported = False
        text = f"The evaluation loss is {loss:.4g} at step {step}: a new best, no over-fitting any more."
        evidence = {"best": plain(loss), "since": step}
        return Finding("overfit_over", "info", step, text, evidence, "keep", {}, _LIMITS, step, 0.9)

    def _not_finite(self, step: int, loss: float, train: float | None) -> Finding | None:
        if self._bad_since is not None or (train is not None and not math.isfinite(train)):
            return None
        self._bad_since = step
        text = (
            f"The evaluation loss is {plain(loss)} at step {step}"
            + (f" while the training loss is {train:.4g}" if train is not None else "")
            + ". Training goes on: the evaluation is broken. Check its samples (all labels masked after cutoff_len?), "
            "then its precision (fp16_full_eval, bf16_full_eval)."
        )
        evidence = {"since": step, "eval_loss": plain(loss), "train_loss": plain(train), "where": "evaluation"}
        return Finding("nan", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.9)
