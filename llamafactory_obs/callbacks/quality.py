"""`quality`: is the model getting better? Evaluations and the probe's verdicts on the same step axis."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ..detect import Finding, OverfittingDetector
from ..record.schema import STEPS, Key
from .base import ObsCallback
from .basics import best_model_is_back
from .probe import Probe
from .verdicts import ProbeEvents, error_counts, layer_scores


@dataclass(eq=False)
class Quality(ObsCallback):
    """Adds to what the record has of evaluations: the generalisation gap, the best loss so far, over-fitting; and the
    probe's scores and error classes at the checkpoint's step.

    With several evaluation sets each has columns of its own: `quality/<set>_gap` and so on.
    """

    yaml_name: ClassVar[str] = "quality"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("quality/gap", "nats", "eval/loss - mean training loss of the steps since the evaluation before"),
        Key("quality/train_loss", "nats", "that mean"),
        Key("quality/best_loss", "nats", "lowest eval/loss so far"),
        Key("quality/steps_since_best", "steps", "steps since then"),
        Key("quality/best_metric", "its own", "best value so far of metric_for_best_model, where that is no loss"),
        Key("probe_error/<class>", "probes", "probes of this checkpoint with an error of this class (docs/probe.md)"),
        Key("probe_score/<layer>", "0..1", "share of the probes whose format, tool_choice, arguments, task are right"),
    )

    patience: int = 3
    """Over-fitting: the evaluation loss rises so many times in a row while the training loss falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience < 1:
            raise ValueError(f"patience must be 1 or more, got {self.patience}")

    def begin(self) -> None:
        args = self.run.trainer.args
        self._output_dir = Path(args.output_dir)
        self._is_main = self.run.trainer.state.is_world_process_zero
        self._events = ProbeEvents(self._output_dir) if self._is_main else None
        self._probe_sends = any(isinstance(callback, Probe) for callback in self.run.callbacks)
        self._sets: dict[str, OverfittingDetector] = {}
        self._seen: dict[int, set[str]] = {}  # step -> what was evaluated there
        self._losses: list[float] = []  # of the steps since the evaluation before
        self._window: tuple[int | None, float | None] = (None, None)  # an evaluation's step, its training loss
        metric = args.metric_for_best_model or "loss"
        self._metric = metric.removeprefix("eval_")
        self._greater, self._best_metric = bool(args.greater_is_better), None
        self._last: dict[str, float] = {}
        self._ended = False
        self._older: dict[int, int] = {}  # step -> segment of the rows before a resume

    def row(self, row) -> None:
        if "train/loss" in row.values:
            self._losses.append(row.values["train/loss"])
        if self.run.replaying:
            self._older[row.step] = row.values.get("segment", 0)
        if self.run.replaying and any(name.startswith("eval/") for name in row.values):
            self._take(row.step, {name.removeprefix("eval/"): v for name, v in row.values.items() if "eval/" in name})

    def evaluated(self, metrics: dict) -> None:
        if self._ended and best_model_is_back(self.run.trainer) is not None:
            return
        step = self.run.trainer.state.global_step
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float)) and k.startswith("eval_")}
        if numbers.keys() <= self._seen.get(step, set()):  # LlamaFactory evaluates once more when training is over
            return
        self._seen.setdefault(step, set()).update(numbers)
        values = self._take(step, {name.removeprefix("eval_"): value for name, value in numbers.items()})
        self._write(values, step, values)

    def logged(self, logs: dict) -> None:
        self._relay()

    def saved(self, folder: str, last: bool) -> None:
        self._relay()

    def end(self) -> None:
        self._ended = True
        self._relay()

    def summary(self) -> dict:
        return self._last

    def _take(self, step: int, metrics: dict[str, float]) -> dict[str, float]:
        """One evaluation of one set; returns its columns."""
        train, values = self._train_loss(step), {}
        for name, loss in metrics.items():
            if name != "loss" and not name.endswith("_loss"):
                continue
            prefix = f"quality/{name.removesuffix('loss')}"
            which = name.removesuffix("_loss") if name != "loss" else ""
            detector = self._sets.setdefault(name, OverfittingDetector(patience=self.patience, name=which))
            finding = detector.update(step, loss, train)
            if detector.best is None:  # not finite so far
                continue
            values |= {
                f"{prefix}best_loss": detector.best,
                f"{prefix}steps_since_best": float(step - detector.best_step),
            }
            if train is not None:
                values |= {f"{prefix}gap": loss - train, f"{prefix}train_loss": train}
            if finding is not None:
                self.run.alert(self.yaml_name, self._with_checkpoint(finding))
        if self._metric in metrics and self._metric != "loss" and not self._metric.endswith("_loss"):
            choose = max if self._greater else min
            new, best = metrics[self._metric], self._best_metric
            if math.isfinite(new):
                self._best_metric = new if best is None else choose(best, new)
            if self._best_metric is not None:
                values["quality/best_metric"] = self._best_metric
        self._last = {
            name.removeprefix("quality/"): v for name, v in values.items() if name.endswith(("gap", "best_loss"))
        }
        return values

    def _train_loss(self, step: int) -> float | None:
        """The mean since the evaluation before; the same for all sets that are evaluated at one step."""
        if self._window[0] != step:
            mean = sum(self._losses) / len(self._losses) if self._losses else None
            self._window, self._losses = (step, mean), []
        return self._window[1]

    def _with_checkpoint(self, finding: Finding) -> Finding:
        """Name the checkpoint to go back to, among those that are on the disk."""
        best = finding.evidence.get("best_step")
        if best is None:
            return finding
        kept = [path for path in self._output_dir.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        nearest = min(kept, key=lambda path: abs(int(path.name.rpartition("-")[2]) - best), default=None)
        if nearest is None:
            text = " No checkpoint is kept; set save_steps to eval_steps and load_best_model_at_end: true."
        elif nearest.name == f"checkpoint-{best}":
            text = f" Use {nearest.name}."
        else:
            text = f" There is no checkpoint of that step; the nearest one is {nearest.name}."
        evidence = finding.evidence | {"checkpoint": nearest.name if nearest else None}
        return replace(finding, text=finding.text + text, evidence=evidence)

    def _relay(self) -> None:
        """What the probe has said since the last time, at the step of its checkpoint."""
        for event in self._events.new() if self._is_main else []:
            if not self._probe_sends:
                self.run.journal.pass_on(event)
            if event["title"] == "verdict":
                scores, errors = layer_scores(event["evidence"]), error_counts(event["evidence"])
                self._write(scores | errors, event["step"], errors if self._probe_sends else scores | errors)

    def _write(self, values: dict[str, float], step: int, sent: dict[str, float]) -> None:
        """Into the step's row, and to the tracker what nobody else sends there."""
        if values:
            segment = {"segment": self._older[step]} if step in self._older else {}  # joins the row that is there
            self.run.append(STEPS, {"step": step, **segment, **values})
        self.run.trackers.log(sent, step)
