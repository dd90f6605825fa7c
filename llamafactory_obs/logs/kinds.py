"""What kind of training a log is of: by its keys and by the settings beside it."""

from .curves import Kind
from .names import LOSS, LR, NORM
from .table import Table

STAGES = {"ppo": "rl", "dpo": "preference", "kto": "preference", "rm": "preference", "sft": "sft", "pt": "sft"}
METHODS = ("grpo", "rloo", "ppo", "gkd", "online_dpo", "reinforce")
"""ms-swift's `rlhf_type` whose loss says nothing of the fit."""

_RL = ("reward", "reward_std", "approx_kl", "clip_ratio", "completion_length", "frac_reward_zero_std")
_RL_FAMILIES = (
    "objective/",
    "policy/",
    "ppo/",
    "completions/",
    "val/clipfrac",
    "clip_ratio/",
    "loss/policy",
    "env/reward",
)
_PREFERENCE = ("rewards/", "logps/", "logits/chosen", "log_odds_chosen", "nll_loss", "eval/rewards/")


def kind_of(table: Table, settings: dict, work: set[str]) -> Kind:
    """The kind of a log. `accuracy` in the rows of LlamaFactory's trainer_log is that of the rewards.

    Args:
        work: what a console says was running: training, prediction, evaluation.
    """
    keys = table.keys
    if not any(name in table.columns for name in (LOSS, LR, NORM)) and "training" not in work and keys:
        return "not_a_training_log"
    if not keys and work and "training" not in work:
        return "not_a_training_log"
    if any(key in keys for key in _RL) or any(key.startswith(_RL_FAMILIES) for key in keys):
        return "rl"
    if any(key.startswith(_PREFERENCE) for key in keys) or ("accuracy" in keys and "current_steps" in keys):
        return "preference"
    if "kl" in keys:
        return "rl"
    return _of_settings(settings) or "sft"


def _of_settings(settings: dict) -> Kind | None:
    method = settings.get("rlhf_type")
    if isinstance(method, str):
        return "rl" if method in METHODS else "preference"
    stage = settings.get("stage")
    return STAGES.get(stage) if isinstance(stage, str) else None
