"""The measured facts of one run that stand in the table, by name."""

import math

import numpy as np

from ..logs.names import LOSS
from .axis import column
from .model import Run

#: fact -> lower is better, higher is better, or neither
FACTS: dict[str, str] = {
    "steps": "",
    "tokens": "",
    "epoch": "",
    "train_loss": "lower",
    "eval_best": "lower",
    "eval_last": "lower",
    "accuracy": "higher",
    "margin": "",
    "probes": "higher",
    "grad_norm": "",
    "mask_ratio": "",
    "hours": "lower",
    "tokens_per_s": "higher",
    "cost": "lower",
    "memory_gib": "lower",
    "resumes": "",
    "alerts": "",
}
_ACCURACY = ("eval/rewards/accuracies", "rewards/accuracies", "eval/accuracy", "accuracy", "eval/pref_accuracy")
_MARGIN = ("eval/rewards/margins", "rewards/margins")
_ROWS = 20


def facts(run: Run) -> dict[str, float | int | None]:
    """Every fact; None where it is not known."""
    summary, best, last = run.summary, run.summary.evaluations.best, run.summary.evaluations.last
    memory = summary.memory
    figures = (memory.reserved_gib, memory.allocated_gib, memory.device_gib, memory.rss_gib)
    probes = summary.probes
    tuned = probes.totals[-1] if probes and probes.best else None
    preference = run.curves.kind == "preference"
    return {
        "steps": summary.steps,
        "tokens": summary.data.tokens,
        "epoch": summary.epoch,
        "train_loss": end_level(run)[0],
        "eval_best": best[2] if best else None,
        "eval_last": last[2] if last and math.isfinite(last[2]) else None,
        "accuracy": _last(run, _ACCURACY) if preference else None,
        "margin": _last(run, _MARGIN) if preference else None,
        "probes": tuned[0] / tuned[1] if tuned and tuned[1] else None,
        "grad_norm": summary.grad_norm.median if summary.grad_norm else None,
        "mask_ratio": summary.data.supervised_ratio,
        "hours": summary.machine_hours,
        "tokens_per_s": summary.mean_tokens_per_s,
        "cost": run.cost,
        "memory_gib": next((value for value in figures if value is not None), None),
        "resumes": len({one.from_step for one in summary.sessions if one.from_step > 0}) if run.record else None,
        "alerts": len(summary.open_alerts) if run.record else None,
    }


def end_level(run: Run) -> tuple[float | None, float | None]:
    """Mean training loss of the last tenth of its rows (at least 20), and half of its 95 % interval."""
    values = column(run.curves, LOSS)[1]
    if not len(values):
        return None, None
    end = values[-max(_ROWS, len(values) // 10) :]
    if not np.isfinite(end).all():
        return math.nan, None
    error = float(1.96 * end.std(ddof=1) / math.sqrt(len(end))) if len(end) > 1 else None
    return float(end.mean()), error


def _last(run: Run, names: tuple[str, ...]) -> float | None:
    """The mean of the last values: of evaluations the last one."""
    for name in names:
        values = column(run.curves, name)[1]
        values = values[np.isfinite(values)]
        if len(values):
            return float(values[-1] if name.startswith("eval/") else values[-_ROWS:].mean())
    return None
