"""What a log does not hold, and what therefore could not be judged."""

from ..logs.curves import Curves


def unseen(curves: Curves) -> list[str]:
    """One line each, the most important first."""
    lines, ours = [], curves.source == "obs"
    rows = sum(curves.columns["train/loss"].present) if "train/loss" in curves.columns else 0
    add = lines.append
    rl = curves.kind == "rl"
    if not curves.has("train/loss"):
        add("no training loss: none of its shapes could be judged")
    elif rows < 12 and not rl:
        add(f"{rows} rows with a loss: spikes need 12 of them, a shape needs 20")
    if curves.logging_steps > 1 and not rl:
        k = curves.logging_steps
        shown = 1 + 2 / k
        add(
            f"logging_steps {k}: a row is the mean of {k} steps, so a spike of one step is diluted {k}-fold (3x looks "
            f"like {shown:.3g}x) and the norm is that of the last step only; logging_steps: 1 shows both"
        )
    if not curves.has("train/grad_norm"):
        why = " (trainer_log.jsonl never has it; trainer_state.json in a checkpoint does)" if not ours else ""
        add(f"no gradient norm{why}: NaN that the Trainer hides, clipping and warning signs before the loss")
    if not any(name.startswith("eval/") for name in curves.columns) and not rl:
        add("no evaluation: over-fitting cannot be proved or ruled out; set eval_strategy, eval_steps and val_size")
    if not curves.has("train/lr"):
        add("no learning rate: warm-up, jumps and the end of the schedule")
    if not curves.has("train/epoch") and not rl:
        add("no epoch: steps of the loss at the borders of epochs are not told from unshuffled data")
    if not any(curves.has(name) for name in ("time/step_s", "time/per_step_s")):
        add("no times: throughput" + (" (callback `throughput`)" if ours else ""))
    if not any(curves.has(name) for name in ("system/allocated_gib", "system/peak_allocated_gib")):
        add("no memory figures: growth of VRAM (callback `vram`)")
    if not curves.has("system/gpu_util"):
        add("no utilisation: a GPU that waits (callback `system`)")
    if curves.max_steps is None:
        add("the planned number of steps: whether the schedule or the run ended early")
    return lines
