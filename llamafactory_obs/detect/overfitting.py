"""Evaluation loss that rises while the training loss falls."""

import math

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = (
    "A small or unlike evaluation set rises for reasons of its own, and a task can get better while the loss rises: ask"
    " the checkpoints (probe) before one is chosen."
)


class OverfittingDetector:
    """Reports an evaluation loss that rose `patience` times in a row while the training loss fell.

    The training loss is the mean over the steps since the evaluation before; it must be lower now than in the window of
    the evaluation from which the rise began. Reported once; a new best evaluation loss closes it with an info.

    Args:
        patience: evaluations in a row.
        name: of the evaluation set, for the text.
    """

    def __init__(self, *, patience: int = 3, name: str = "") -> None:
        if patience < 1:
            raise ValueError("patience must be at least 1")
        self.patience, self.name = patience, name
        self.best: float | None = None
        self.best_step: int | None = None
        self._last: float | None = None
        self._rises = 0
        self._train_before: float | None = None  # of the evaluation from which the rise began
        self._reported = False

    def update(self, step: int, eval_loss: float | None, train_loss: float | None) -> Finding | None:
        """Takes one evaluation and the training loss of the steps since the one before (None before the first step)."""
        loss, train = as_number(eval_loss), as_number(train_loss)
        if loss is None or not math.isfinite(loss):
            return None
        if self._last is not None and loss > self._last:
            self._rises += 1
        else:
            self._rises, self._train_before = 0, train
        self._last = loss
        if self.best is None or loss < self.best:
            self.best, self.best_step = loss, step
            if self._reported:
                self._reported = False
                text = (
                    f"The evaluation loss{self._of} is {loss:.4g} at step {step}: a new best, no over-fitting any more."
                )
                evidence = {"eval_loss": plain(loss), "set": self.name}
                return Finding("overfitting over", "info", step, text, evidence, "keep", {}, _LIMITS)
        falls = train is not None and self._train_before is not None and train < self._train_before
        if self._reported or self._rises < self.patience or not falls:
            return None
        self._reported = True
        text = (
            f"The evaluation loss{self._of} has risen {self._rises} times in a row, to {loss:.4g} at step {step}, while"
        )
        text += f" the training loss fell to {train:.4g}: over-fitting. Best: {self.best:.4g} at step {self.best_step}."
        evidence = {
            "eval_loss": plain(loss),
            "train_loss": plain(train),
            "train_loss_before": plain(self._train_before),
        }
        evidence |= {"best": plain(self.best), "best_step": self.best_step, "rises": self._rises, "set": self.name}
        return Finding("overfitting", "warn", step, text, evidence, "keep", {}, _LIMITS)

    @property
    def _of(self) -> str:
        return f" of {self.name}" if self.name else ""
