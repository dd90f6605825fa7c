"""What to change because of a finding: keys for the YAML, and the checkpoint to go back to."""

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

from ..detect import Finding
from ..logs.curves import Curves
from ..record.schema import FOLDER

_NAN_CHECKS = [
    "the samples of that step (empty, cut, wrong labels)",
    "learning rate and warm-up",
    "precision (bf16 rather than fp16)",
    "labels all masked (`llamafactory-obs mask`)",
    "torch.autograd.set_detect_anomaly(True) on that step",
]


@dataclass(frozen=True)
class Known:
    """What is known of a run when a remedy is looked for.

    Attributes:
        settings: training arguments; a key that is not there is unknown, and nothing is suggested for it.
        peak_rate: the highest learning rate that was logged, None where none was.
        checkpoints: step -> folder of the checkpoints that exist.
        recorded: the run's folder, for `control`; None where it is not known to have our record.
        saved: steps at which a checkpoint was written, also where it is gone since.
        epoch_at: step -> epoch, None where unknown.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    peak_rate: float | None = None
    checkpoints: dict[int, Path] = field(default_factory=dict)
    saved: tuple[int, ...] = ()
    recorded: Path | None = None
    epoch_at: Callable[[int], float | None] = lambda step: None

    @classmethod
    def of(cls, curves: Curves) -> "Known":
        """What a log and the files beside it tell."""
        saved = {event["step"] for event in curves.events if event.get("kind") == "checkpoint" and "step" in event}
        column = curves.columns.get("train/lr")
        rates = filter(math.isfinite, compress(column.values, column.present)) if column is not None else ()
        peak = max(rates, default=None)
        recorded = _folder(curves.path) if curves.source == "obs" else None
        return cls(curves.settings, peak, curves.checkpoints, tuple(sorted(saved)), recorded, _epochs(curves))

    @property
    def rate(self) -> float | None:
        """The learning rate of the run: as it was set, else the highest one logged."""
        given = self.settings.get("learning_rate")
        given = given if isinstance(given, int | float) and not isinstance(given, bool) else None
        return given or self.peak_rate or None

    def checkpoint_before(self, step: int) -> tuple[int, Path | None] | None:
        """The last checkpoint before `step`: its step, and its folder where that exists."""
        there = [at for at in self.checkpoints if at < step]
        if there:
            return max(there), self.checkpoints[max(there)]
        saved = [at for at in self.saved if at < step]
        every = self.settings.get("save_steps")
        if not saved and not self.checkpoints and isinstance(every, int | float) and every >= 1:
            saved = [at for at in [int((step - 1) // every * every)] if at > 0]
        return (max(saved), None) if saved else None


def with_remedies(finding: Finding, known: Known) -> Finding:
    """The finding with the keys to change in `suggest` and the checkpoint to use named in its text and evidence."""
    since = finding.evidence.get("since", finding.step)
    suggest, more, evidence = dict(finding.suggest), "", {}
    if finding.name in ("spike", "diverged") and finding.action == "kill":
        suggest |= _half_rate(known)
        more = _go_back(known, since, evidence, suggest)
    elif finding.name in ("nan", "inf") and finding.action == "kill":
        checks = list(_NAN_CHECKS)
        if known.settings.get("neat_packing"):
            checks.insert(0, "neat_packing is on: try without it")
            suggest["neat_packing"] = False
        evidence["checks"] = checks
        more = _go_back(known, since, evidence, {}) + f" Check in this order: {'; '.join(checks)}."
        suggest = _sensible(suggest, known)
    elif finding.name in ("zero_loss", "flat", "stalled"):
        suggest |= _larger_rate(known) if finding.name != "zero_loss" else {}
        suggest |= {"neat_packing": False} if known.settings.get("neat_packing") else {}
    elif finding.name == "jitter":
        batch = known.settings.get("gradient_accumulation_steps")
        suggest |= {"gradient_accumulation_steps": 2 * batch} if isinstance(batch, int) and batch > 0 else {}
    elif finding.name in ("overfit", "overfit_suspect"):
        suggest |= _fewer_epochs(known, since)
        suggest |= _evaluate(known) if finding.name == "overfit_suspect" else {}
        more = _take(known, since, evidence)
    elif finding.name == "memorising":
        suggest |= _evaluate(known)
        rate, limit = known.rate, 1e-3
        if rate is not None and rate >= limit and known.settings.get("finetuning_type") in ("lora", "full", "freeze"):
            suggest |= {"learning_rate": _round(rate / 10)}
            more = (
                f" The learning rate of {rate:.2g} is high for it (usual: 1e-4 for LoRA, 1e-5 for full): lower it too."
            )
            more += (
                "" if known.settings.get("warmup_ratio") or known.settings.get("warmup_steps") else " Add a warm-up."
            )
            evidence["learning_rate"] = rate
    elif finding.name == "resume_gap":
        if known.settings.get("save_only_model") is not True:
            suggest.pop("save_only_model", None)
        else:
            more = " save_only_model is true: the checkpoint had no optimizer and no scheduler."
    elif finding.name == "stairs" and known.settings.get("disable_shuffling") is not True:
        suggest.pop("disable_shuffling", None)
    return replace(finding, text=finding.text + more, evidence={**finding.evidence, **evidence}, suggest=suggest)


def _half_rate(known: Known) -> dict:
    return {"learning_rate": _round(known.rate / 2)} if known.rate else {}


def _larger_rate(known: Known) -> dict:
    """Only where the rate is far under what the method needs."""
    usual = {"lora": 1e-4, "full": 1e-5, "freeze": 1e-5}.get(known.settings.get("finetuning_type", ""))
    return {"learning_rate": usual} if usual and known.rate and known.rate < usual / 20 else {}


def _go_back(known: Known, since: int, evidence: dict, suggest: dict) -> str:
    """Names the last checkpoint before `since`; for a known method adds the key that starts from it."""
    found = known.checkpoint_before(since)
    if found is None:
        evidence["checkpoint"] = None
        if known.settings.get("save_steps") or known.checkpoints:
            return " There is none before it: start anew."
        return " Which checkpoints there are is not known here." + _halved(known, "learning_rate" in suggest)
    step, folder = found
    evidence |= {"checkpoint": f"checkpoint-{step}", "checkpoint_exists": folder is not None}
    halved = "learning_rate" in suggest
    if folder is None:
        return f" That is checkpoint-{step}, if it was kept.{_halved(known, halved)}"
    method = known.settings.get("finetuning_type")
    if halved and method in ("lora", "oft", "full"):
        suggest["model_name_or_path" if method == "full" else "adapter_name_or_path"] = str(folder)
    return f" That is checkpoint-{step}.{_halved(known, halved)}"


def _halved(known: Known, wanted: bool) -> str:
    """How to go on at half the rate: a resume takes it from the checkpoint's scheduler, whatever the YAML says."""
    if not wanted:
        return ""
    if known.recorded is None:
        return " Load its weights anew: a resume keeps the old rate whatever the YAML says."
    command = f"llamafactory-obs control {shlex.quote(str(known.recorded))} --lr-scale 0.5 --queue"
    return f" A resume keeps the old rate whatever the YAML says; `{command}` halves it at the next start."


def _folder(path: Path) -> Path:
    """The run's folder, of its `obs/` folder or of a file in that."""
    folder = path if path.is_dir() else path.parent
    return folder.parent if folder.name == FOLDER else folder


def _take(known: Known, since: int, evidence: dict) -> str:
    found = known.checkpoint_before(since + 1)
    if found is None:
        return ""
    evidence |= {"checkpoint": f"checkpoint-{found[0]}", "checkpoint_exists": found[1] is not None}
    return f" That is checkpoint-{found[0]}{'' if found[1] else ', if it was kept'}."


def _fewer_epochs(known: Known, since: int) -> dict:
    epoch, planned = known.epoch_at(since), known.settings.get("num_train_epochs")
    limited = known.settings.get("max_steps")
    if epoch is None or not isinstance(planned, int | float) or (isinstance(limited, int) and limited > 0):
        return {}
    fewer = max(0.1, math.ceil(epoch * 10 - 1e-6) / 10)
    return {"num_train_epochs": fewer} if fewer < planned else {}


def _evaluate(known: Known) -> dict:
    """An evaluation for a run that is known to have none."""
    s = known.settings
    if s.get("eval_strategy") != "no" or s.get("eval_dataset") or s.get("streaming") or "val_size" not in s:
        return {}
    every = s.get("save_steps")
    return {"val_size": 0.05, "eval_strategy": "steps", "eval_steps": int(every) if _is_step(every) else 100}


def _is_step(value: object) -> bool:
    return isinstance(value, int | float) and value >= 1


def _sensible(suggest: dict, known: Known) -> dict:
    """Without what the run has already, or what is not known to be otherwise."""
    return {key: value for key, value in suggest.items() if key in known.settings and known.settings[key] != value}


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _epochs(curves: Curves) -> Callable[[int], float | None]:
    def at(step: int) -> float | None:
        steps, epochs = curves.points("train/epoch")
        before = [epoch for s, epoch in zip(steps, epochs, strict=True) if s <= step]
        return before[-1] if before else None

    return at
