"""What a log does not hold, and what therefore could not be judged."""

from ..logs.curves import Curves
from ..texts import text


def unseen(curves: Curves) -> list[str]:
    """One line each, the most important first."""
    lines, ours = [], curves.source == "obs"
    rows = sum(curves.columns["train/loss"].present) if "train/loss" in curves.columns else 0
    add = lines.append
    rl = curves.kind == "rl"
    if not curves.has("train/loss"):
        add(text("diagnose.lacks.loss"))
    elif rows < 12 and not rl:
        add(text("diagnose.lacks.rows", rows=rows))
    if curves.logging_steps > 1 and not rl:
        k = curves.logging_steps
        shown = 1 + 2 / k
        add(text("diagnose.lacks.logging_steps", k=k, shown=shown))
    if not curves.has("train/grad_norm"):
        why = text("diagnose.lacks.norm_where") if not ours else ""
        add(text("diagnose.lacks.norm", why=why))
    if not any(name.startswith("eval/") for name in curves.columns) and not rl:
        add(text("diagnose.lacks.eval"))
    if not curves.has("train/lr"):
        add(text("diagnose.lacks.rate"))
    if not curves.has("train/epoch") and not rl:
        add(text("diagnose.lacks.epoch"))
    if not any(curves.has(name) for name in ("time/step_s", "time/per_step_s")):
        add(text("diagnose.lacks.times") + (text("diagnose.lacks.times_how") if ours else ""))
    if not any(curves.has(name) for name in ("system/allocated_gib", "system/peak_allocated_gib")):
        add(text("diagnose.lacks.memory"))
    if not curves.has("system/gpu_util"):
        add(text("diagnose.lacks.util"))
    if curves.max_steps is None:
        add(text("diagnose.lacks.max_steps"))
    return lines
