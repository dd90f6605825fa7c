"""What other programs call the columns of docs/keys.md.

A key without a name here keeps its own. Of `eval_<name>` the evaluation's own numbers become `eval/<name>`.
"""

STEP, TOTAL, ELAPSED, STAMP = "step", "total_steps", "time/elapsed_s", "unix_time"
LOSS, LR, NORM, EPOCH, EVAL = "train/loss", "train/lr", "train/grad_norm", "train/epoch", "eval/loss"
SUMMARY, THROUGHPUT, TOKENS = "train_loss", "throughput", "total_tokens"

_NAMES = {
    LOSS: ("loss", "train/loss", "training_loss", "train.loss"),
    LR: ("learning_rate", "lr", "train/learning_rate", "train/lr"),
    NORM: ("grad_norm", "train/grad_norm", "gradient_norm", "global_grad_norm"),
    EPOCH: ("epoch", "train/epoch"),
    EVAL: ("eval_loss", "eval/loss", "val_loss", "valid_loss", "validation_loss", "dev_loss", "val/loss"),
    STEP: (
        "step",
        "current_steps",
        "global_step",
        "global_step/max_steps",
        "train/global_step",
        "iteration",
        "iter",
        "_step",
    ),
    TOTAL: ("total_steps", "max_steps"),
    ELAPSED: ("elapsed_time", "_runtime"),
    STAMP: ("time", "timestamp", "_timestamp", "wall_time"),
    TOKENS: ("total_tokens", "num_input_tokens_seen"),
    THROUGHPUT: ("throughput",),
    SUMMARY: ("train_loss",),
    "system/peak_allocated_gib": ("vram_allocated",),
    "system/peak_reserved_gib": ("vram_reserved", "memory(GiB)"),
}
OURS = {theirs: ours for ours, all_theirs in _NAMES.items() for theirs in all_theirs}
_RANK = {theirs: at for all_theirs in _NAMES.values() for at, theirs in enumerate(all_theirs)}

UNUSED = frozenset(("percentage", "remaining_time", "log_history"))
"""Follows from the other columns, or is no number."""

PLACE = frozenset((STEP, TOTAL, ELAPSED, STAMP, EPOCH, TOKENS, THROUGHPUT))
"""Says where a row stands, not what was measured there."""


def our_name(key: str) -> str:
    """The column for a key of a log."""
    name = OURS.get(key)
    if name is None:
        name = f"eval/{key[5:]}" if key.startswith("eval_") and len(key) > 5 else key
    return name


def rank(key: str) -> int:
    """Of two keys that mean the same the lower one is the better source."""
    return _RANK.get(key, 0)
