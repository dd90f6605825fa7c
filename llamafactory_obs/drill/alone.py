"""The config of a drill's training: the user's, in a folder of its own, where nothing leaves it or ends it early."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..preflight.rehearsal.derive import ALONE, GONE, NEUTRAL, Derived, limits, name_of, replaced, uses_other_hub
from ..preflight.run_config import RunConfig

#: nothing is resumed unless the drill says so, and nothing is reported or ends it early
_ALONE = {
    **ALONE,
    "do_eval": False,
    "do_predict": False,
    "save_total_limit": GONE,
    "early_stopping_steps": GONE,
    "report_to": "none",
    "evaluation_strategy": GONE,
    "eval_delay": GONE,
    "eval_on_start": GONE,
}
#: no evaluation; the evaluation set stays, because it decides which rows are left to train on
NO_EVALUATION = {
    "eval_strategy": "no",
    "eval_steps": GONE,
    "load_best_model_at_end": False,
    "metric_for_best_model": GONE,
    "greater_is_better": GONE,
}
#: callbacks that start a process of their own and cannot change the training
_LEFT_OUT = ("probe",)


def derive(config: RunConfig, output_dir: Path, wanted: dict, callbacks: list, obs: dict) -> Derived:
    """The config of one training.

    Args:
        config: of the real run.
        output_dir: of the training, the drill's own.
        wanted: further keys; `GONE` takes one out.
        callbacks: the whole list.
        obs: the whole block.
    """
    given, wanted = config.given, {**_ALONE, "output_dir": str(output_dir), **wanted}
    if given.get("tokenized_path") and not _holds_something(given["tokenized_path"]):
        wanted["tokenized_path"] = GONE  # LlamaFactory would write it there
    if given.get("cache_dir") and not uses_other_hub():
        wanted["cache_dir"] = GONE  # data sets are cached there too; `child.environment` says where the model is
    given, changed = replaced(given, wanted, NEUTRAL)
    given["callbacks"], given["obs"] = callbacks, obs
    return Derived(given, changed, left_out(config))


def own_callbacks(config: RunConfig, but: Sequence[str] = ()) -> list:
    """The entries of `callbacks:` that take part in a drill, without those of some names."""
    return [entry for entry in config.callbacks if name_of(entry) not in (*_LEFT_OUT, *but)]


def left_out(config: RunConfig) -> list[str]:
    """The names of those that do not."""
    return [one for one in map(name_of, config.callbacks) if one in _LEFT_OUT]


def own_settings(config: RunConfig) -> dict:
    """The `obs:` block without webhooks, commands, and what no training reads; nothing acts by itself."""
    return {**limits(config.settings), "control": {"listen": False}}


def _holds_something(path: object) -> bool:
    return os.path.isdir(str(path)) and bool(os.listdir(str(path)))
