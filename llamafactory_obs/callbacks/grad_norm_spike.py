"""`grad_norm_spike`: alerts on the gradient norm before clipping, of every optimizer step."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

from ..alerts.acting import demands
from ..detect import Finding, NonFiniteDetector, SpikeDetector, StalledDetector
from .base import ObsCallback


@dataclass(eq=False)
class GradNormSpike(ObsCallback):
    """Judges `train/grad_norm` and `train/loss` of every step, whatever `logging_steps` is.

    Three rules, each in its own detector (see `docs/spike_rule.md` for the measured false alarms):
    a spike against the run's own recent level; NaN or infinity, also behind a logged loss of 0.0; a norm that stays
    near 0. The norm alone gives a warning; with a rise of the loss, a gigantic ratio or several steps in a row it
    is an alarm.
    """

    yaml_name: ClassVar[str] = "grad_norm_spike"

    action: Literal["warn", "save", "stop"] = "warn"
    """What an alarm does besides: save a checkpoint, or save one and stop. (Non-finite weights are not saved.)"""

    window: int = 64
    """Accepted steps that form the usual level."""

    z: float = 5.0
    """Robust z-score (median and MAD of ln norm) from which a norm counts as a spike."""

    ratio: float = 3.0
    """Multiple of the usual norm that a spike must reach as well."""

    stalled_below: float = 1e-6
    """A norm under this for `stalled_steps` steps in a row means that learning stands still."""

    stalled_steps: int = 5
    """How many steps in a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratio < 2:
            raise ValueError(f"ratio must be 2 or more (less is noise), got {self.ratio}")
        if self.z <= 0:
            raise ValueError(f"z must be above 0, got {self.z}")
        if self.stalled_below <= 0 or self.stalled_steps < 1:
            raise ValueError("stalled_below must be above 0 and stalled_steps 1 or more")
        if self.window < 12:
            raise ValueError(f"window must be at least 12 steps, got {self.window}")
        self._build()

    def _build(self) -> None:
        early, huge = max(8.0, self.ratio), max(100.0, self.ratio)
        self._spike = SpikeDetector(window=self.window, z=self.z, ratio=self.ratio, early_ratio=early, huge_ratio=huge)
        self._nonfinite = NonFiniteDetector()
        self._stalled = StalledDetector(threshold=self.stalled_below, patience=self.stalled_steps)
        self._attributed = False
        self._bad_steps: list[int] = []
        self._said_untrusted = False
        self._said_unavailable = False

    def begin(self) -> None:
        self._build()

    def gradients(self, gradients) -> None:
        """Before the update: a bad weight can still be told from those it infects, where the loss is known already.

        On a GPU it is known when the Trainer has waited for it (`logging_nan_inf_filter`, its default).
        """
        row = self.run.open_row
        row.harvest(force=False)
        loss = row.values.get("train/loss")
        norm = row.values.get("train/grad_norm")
        bad_loss = loss is not None and not math.isfinite(loss)
        bad_norm = norm is not None and not math.isfinite(norm)
        if (bad_loss or bad_norm) and not self._attributed:
            row.facts["bad_weights"] = _nonfinite_weights(self.run.trainer.model)

    def row(self, row) -> None:
        values = row.values
        norm, loss = values.get("train/grad_norm"), values.get("train/loss")
        if norm is None and loss is None:
            return
        if norm is None:
            self._say_unavailable()
        if not self.run.replaying and loss is not None and not math.isfinite(loss):
            self._bad_steps.append(row.step)
        skipped = values.get("train/step_skipped")
        finding = self._nonfinite.update(
            row.step,
            norm,
            loss,
            scaler_active=skipped is not None,
            step_skipped=None if skipped is None else skipped > 0,
        )
        if finding is not None and not self.run.replaying:
            self._alert(self._with_cause(finding, row))
        for finding in (self._spike.update(row.step, norm, loss), self._stalled.update(row.step, norm)):
            if finding is not None:
                self._alert(finding)

    def logged(self, logs: dict) -> None:
        if "loss" not in logs:
            return
        filtered = self.run.trainer.args.logging_nan_inf_filter
        if self._bad_steps and filtered and not self._said_untrusted:
            self._said_untrusted = True
            text = (
                f"the logged loss {logs['loss']:.4g} is not trustworthy: step {self._bad_steps[0]} was non-finite and"
                " the Trainer replaced it by a running mean (logging_nan_inf_filter); later windows may read 0.0"
            )
            evidence = {"logged_loss": float(logs["loss"]), "nonfinite_steps": self._bad_steps[:10]}
            self.run.event(
                "untrusted_loss", self.yaml_name, "logged loss not trustworthy", text, level="warn", evidence=evidence
            )
        self._bad_steps = []

    def summary(self) -> dict:
        norm = self.run.last.values.get("train/grad_norm")
        return {} if norm is None else {"grad_norm": norm, "clip_coef": self.run.last.values["train/clip_coef"]}

    def _alert(self, finding: Finding) -> None:
        self.run.alert(self.yaml_name, finding)
        if finding.level == "error":
            for what in demands(self.action, finding.name, lost=self._nonfinite.is_dead):
                self.run.request(what, finding.step)

    def _with_cause(self, finding: Finding, row) -> Finding:
        """Add which parameter was first, what else to check, and the checkpoint to go back to."""
        if finding.level != "error":
            return finding
        first = not self._attributed
        self._attributed = True
        text, evidence = _attribute(row, self.run.parameter_names) if first else ("", {})
        checks = [
            "data",
            "learning rate",
            "precision (bf16 rather than fp16)",
            "attention backend",
            "all labels masked",
        ]
        if self.context.data("neat_packing"):
            checks.insert(0, "neat_packing is on: try without it")
        good = _newest_checkpoint(self.run.trainer.args.output_dir, before=finding.evidence.get("since", finding.step))
        back = f"Go back to {good}." if good else "No checkpoint before it exists."
        return Finding(
            finding.name,
            finding.level,
            finding.step,
            f"{finding.text} {text} {back} Check in this order: {'; '.join(checks)}.".replace("  ", " "),
            {**finding.evidence, **evidence, "last_good_checkpoint": good, "checks": checks},
            finding.action,
            finding.suggest,
            finding.limits,
        )

    def _say_unavailable(self) -> None:
        if not self._said_unavailable:
            self._said_unavailable = True
            text = "this trainer gives no gradient norm; only the loss is judged"
            self.run.event("unavailable", self.yaml_name, "no gradient norm", text, level="warn")


def _attribute(row, names_of) -> tuple[str, dict]:
    """Which gradient, or which weight, was the first to be non-finite; or why that cannot be told."""
    weights, norms = row.facts.get("bad_weights"), row.facts.get("norms")
    if weights:
        return f"Non-finite weights: {', '.join(weights[:3])}.", {"nonfinite_weights": weights[:20]}
    if norms is None:
        return "The parameter cannot be named: this engine keeps its gradients to itself.", {}
    names = names_of(row.facts["parameters"])
    bad = [name for name, norm in zip(names, norms, strict=True) if not math.isfinite(norm)]
    evidence = {"nonfinite_gradients": bad[:20], "nonfinite_gradient_count": len(bad), "gradient_count": len(names)}
    if bad and len(bad) < len(names):
        return f"First non-finite gradient: {', '.join(bad[:3])} ({len(bad)} of {len(names)}).", evidence
    if weights is None:
        return "All gradients were non-finite when it was seen: the parameter cannot be named.", evidence
    return (
        "All weights were finite and all gradients not: it came in with the loss (data, labels, precision).",
        evidence,
    )


def _nonfinite_weights(model: torch.nn.Module) -> list[str]:
    """Names of weights with a NaN or infinite element. Waits for the device; only called when a step is already bad."""
    with torch.no_grad():
        return [name for name, p in model.named_parameters() if p.is_floating_point() and not torch.isfinite(p).all()]


def _newest_checkpoint(output_dir: str, before: int) -> str | None:
    found = [
        (int(m[1]), p)
        for p in Path(output_dir).glob("checkpoint-*")
        if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))
    ]
    earlier = [item for item in found if item[0] < before]
    return str(max(earlier)[1]) if earlier else None
