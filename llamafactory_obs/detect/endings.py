"""Which findings go on until they are over, and which say that another one is over.

An ending is known by its name: `X_over` and `X over` end X, `X_back` ends X_low and X_high; the others stand in
`ENDINGS`. `tests/test_alert_endings.py` looks at every finding in the code, so that a new one is not forgotten.
"""

from collections.abc import Mapping

from .finding import Level

RANK: dict[Level, int] = {"info": 0, "warn": 1, "error": 2}

#: ending -> what it ends, where its name does not say so
ENDINGS: dict[str, tuple[str, ...]] = {
    "spike_over": ("spike", "diverged"),
    "new_level": ("spike",),
    "finite_again": ("nan", "inf"),
    "nan_over": ("nan", "inf"),
    "learning_again": ("stalled",),
    "gpu_util_back": ("low_gpu_util",),
    "growth_over": ("memory_growth", "ram_growth", "vram_growth"),
}

#: findings whose detector also says when they are over -> the level from which on it does; below it they are a moment.
#: An error goes on in any case.
LASTING: dict[str, Level] = {
    "spike": "error",
    "grad_norm_spike": "error",
    "diverged": "error",
    "flat": "error",
    "zero_loss": "error",
    "nan": "error",
    "inf": "error",
    "stalled": "error",
    "desync": "error",
    "labels_moved": "error",
    "oom": "error",
    "checkpoint_will_not_fit": "error",
    "checkpoint_broken": "error",
    "checkpoint_late": "warn",
    "memory_growth": "warn",
    "ram_growth": "warn",
    "ram_nearly_gone": "warn",
    "disk_too_small": "warn",
    "disk_nearly_full": "warn",
    "low_gpu_util": "warn",
    "gpu_throttled": "warn",
    "straggler": "warn",
    "overfitting": "warn",
    "overfit": "warn",
    "overfit_suspect": "warn",
    "plateau": "warn",
    "jitter": "warn",
    "throughput_drop": "warn",
    "vram_growth": "warn",
    "low_gpu_use": "warn",
    "no_advantage": "warn",
    "supervised_ratio_low": "warn",
    "supervised_ratio_high": "warn",
}

#: warnings and infos that are one moment: nothing ever says that they are over
MOMENTS = frozenset(
    {
        "always clipped",
        "broken moments",
        "chosen_falls",
        "fully masked samples",
        "gpu_lost",
        "kl_jump",
        "little memory left",
        "loss scale collapses",
        "lr_anomaly",
        "memorising",
        "notice_too_short",
        "normaliser not constant",
        "optimizer state fresh",
        "padding in the loss",
        "periodic",
        "preference_flat",
        "preference_reversed",
        "rate set from outside",
        "resume_gap",
        "reward_collapse",
        "skipped_step",
        "stairs",
        "unexplained jump",
        "vanished moments",
    }
)

#: keys of the evidence that tell findings of one name apart: both may go on at the same time
_WHICH = ("column", "view", "set", "rank")


def ended_by(name: str) -> tuple[str, ...]:
    """The names of the findings that a finding of this name ends; empty for one that is no ending."""
    if name in ENDINGS:
        return ENDINGS[name]
    for suffix in ("_over", " over"):
        if name.endswith(suffix):
            return (name.removesuffix(suffix),)
    return _sides(name.removesuffix("_back")) if name.endswith("_back") else ()


def replaced_by(name: str) -> tuple[str, ...]:
    """What is no longer true once a finding of this name is: a ratio that is too high is not too low."""
    stem = name.removesuffix("_low").removesuffix("_high")
    return tuple(side for side in _sides(stem) if side != name) if stem != name else ()


def goes_on(name: str, level: Level) -> bool:
    """Does it hold until something says that it is over?"""
    return RANK[level] >= RANK[LASTING.get(name, "error")]


def which(evidence: Mapping) -> str:
    """What tells this finding from others of its name, as text; empty where there is only one."""
    return ",".join(f"{key}={evidence[key]}" for key in _WHICH if evidence.get(key) not in (None, ""))


def _sides(stem: str) -> tuple[str, ...]:
    return (f"{stem}_low", f"{stem}_high")
