"""What every record has, whatever callbacks are named: loss, learning rate and gradient norm of each step."""

import math
import os
from typing import ClassVar

import torch

from ..record.schema import STEPS, Key
from .base import ObsCallback
from .taps import Gradients, gradients_of


class Basics(ObsCallback):
    """Always on; first in the recorder's list."""

    yaml_name: ClassVar[str] = "basics"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("train/loss", "nats", "training loss of this one step (not the logged window's mean)", "mean"),
        Key("train/lr", "1", "learning rate that made this step's update (first parameter group)"),
        Key("train/lr_scale", "1", "factor on the schedule by `control`; left out while it is 1"),
        Key("train/epoch", "epochs", "position in the data"),
        Key("train/grad_norm", "1", "global gradient norm before clipping"),
        Key("train/clip_coef", "1", "factor that clipping applied to the gradients, 1 = not clipped"),
        Key("train/step_skipped", "0 or 1", "the GradScaler skipped this update (fp16 only)", "max"),
        Key(
            "time/callbacks_s",
            "s",
            "time spent in our callbacks since the last step's end; on a GPU with `throughput`: what of it the device"
            " waited for",
            "mean",
        ),
    )

    def __init__(self):
        self._seen = False
        self._lr: float | None = None
        self._ended = False

    def begin(self) -> None:
        self._ended = False

    def loss(self, loss) -> None:
        """A step's loss is the sum over its micro-batches: the Trainer has already divided each by their number."""
        self.run.defer([loss], _add_loss)

    def gradients(self, gradients: Gradients) -> None:
        self._seen = True
        self.run.open_row.facts["parameters"] = gradients.parameters
        limit = gradients.max_norm
        if isinstance(gradients.total, (int, float)):
            _take_norm(self.run.open_row, float(gradients.total), limit)
        elif gradients.total is not None:
            tensors = [gradients.total] + ([gradients.norms] if gradients.norms is not None else [])
            self.run.defer(tensors, lambda row, total, *norms: _take_norm(row, total, limit, *norms))

    def unclipped(self) -> Gradients | None:
        """The gradients just before the update when nobody has clipped them; None when they have been seen already."""
        if self._seen or self._scaler() is not None:  # scaled gradients are not those of the loss
            return None
        return gradients_of(self.run.trainer.model)

    def updated(self) -> None:
        self._lr = self.run.trainer.optimizer.param_groups[0]["lr"]  # whoever set it
        if isinstance(self._lr, torch.Tensor):  # on the device (capturable optimizers): the scheduler knows it here
            self._lr = self.run.trainer.lr_scheduler.get_last_lr()[0]

    def step(self) -> None:
        if self._lr is not None:
            self.run.put("train/lr", float(self._lr))
        if self.run.lr_scale != 1:
            self.run.put("train/lr_scale", self.run.lr_scale)
        if self.run.trainer.state.epoch is not None:
            self.run.put("train/epoch", float(self.run.trainer.state.epoch))
        if self._scaler() is not None:
            self.run.put("train/step_skipped", float(self.run.trainer.accelerator.optimizer_step_was_skipped))
        self._seen = False

    def logged(self, logs: dict) -> None:
        if self.context.stage == "ppo" and "loss" in logs:  # its loop is its own: only its logs are to be had
            self.run.append(STEPS, {"step": self.run.trainer.state.global_step, "train/loss": logs["loss"]})

    def evaluated(self, metrics: dict) -> None:
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float)) and k.startswith("eval_")}
        row = {k.replace("eval_", "eval/", 1): v for k, v in numbers.items()}
        best = best_model_is_back(self.run.trainer) if self._ended else None
        if best is None:
            self.run.append(STEPS, {"step": self.run.trainer.state.global_step, **row})
        loss = f"eval loss {row['eval/loss']:.4g}" if "eval/loss" in row else "evaluated"
        loss += f" of {best}, the best model, which is back" if best is not None else ""
        self.run.event("eval", self.yaml_name, "evaluation", loss, evidence=row, show=False)

    def end(self) -> None:
        self._ended = True

    def _scaler(self):
        return getattr(self.run.trainer.accelerator, "scaler", None)


def best_model_is_back(trainer) -> str | None:
    """The checkpoint whose weights the model has after training (`load_best_model_at_end`); None where it has its own.

    An evaluation of it says nothing about the last step.
    """
    best = trainer.state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    return os.path.basename(best) if best else None


def _add_loss(row, loss: float) -> None:
    row.values["train/loss"] = row.values.get("train/loss", 0.0) + loss


def _take_norm(row, total: float, max_norm: float, norms: list | None = None) -> None:
    row.values["train/grad_norm"] = total
    clips = math.isfinite(max_norm) and max_norm > 0
    coefficient = max_norm / (total + 1e-6) if clips else 1.0
    row.values["train/clip_coef"] = coefficient if coefficient < 1 or math.isnan(coefficient) else 1.0
    row.facts["norms"] = norms
