"""From a run config to the config of a short training on chosen rows: what is changed, and nothing else.

Machine keys (`bf16`, `deepspeed`, `quantization_bit` ...), the model, the method, batch size, accumulation and
everything that decides how a row becomes tokens stay as they are.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...settings import Settings
from ..run_config import RunConfig

#: a key that is taken out, so that LlamaFactory's default holds
GONE = None

#: no evaluation: it would read other rows, and some of these keys demand the others
NO_EVALUATION = {
    "do_eval": False,
    "do_predict": False,
    "eval_strategy": "no",
    "evaluation_strategy": GONE,
    "eval_steps": GONE,
    "eval_delay": GONE,
    "eval_on_start": GONE,
    "eval_dataset": GONE,
    "eval_on_each_dataset": GONE,
    "val_size": GONE,
    "predict_with_generate": GONE,
    "load_best_model_at_end": False,
    "metric_for_best_model": GONE,
    "greater_is_better": GONE,
    "early_stopping_steps": GONE,
}

#: nothing leaves the folder, nothing is resumed
ALONE = {
    "do_train": True,
    "overwrite_output_dir": True,
    "resume_from_checkpoint": GONE,
    "use_swanlab": False,
    "push_to_hub": False,
    "run_name": GONE,
    "logging_dir": GONE,
    "plot_loss": False,
    "disable_tqdm": True,
}

#: nothing is reported, each step is logged
_LOGS = {
    "report_to": "none",
    "logging_steps": 1,
    "logging_strategy": GONE,
    "logging_first_step": GONE,
}

#: a schedule over the steps of the real run would be nothing but its warm-up here
_RATE = {"lr_scheduler_type": "constant", "lr_scheduler_kwargs": GONE, "warmup_steps": 0, "warmup_ratio": GONE}

#: the chosen rows in their order
_ROWS = {
    "disable_shuffling": True,
    "mix_strategy": "concat",
    "interleave_probs": GONE,
    "max_samples": GONE,
    "streaming": False,
    "buffer_size": GONE,
    "overwrite_cache": True,
    "tokenized_path": GONE,
}

#: what stands for "not given" where LlamaFactory's default does the same
NEUTRAL = (GONE, False, 0, "none", "no", "concat")


@dataclass(frozen=True)
class Derived:
    """A config made from another.

    Attributes:
        given: all keys, ours too, ready to be written.
        changed: key -> `{"from", "to"}`, null for a key that is not there.
        left_out: callbacks of the config that do not take part.
    """

    given: dict
    changed: dict
    left_out: list[str]


def derive(config: RunConfig, data: dict, output_dir: Path, callbacks: list, changes: dict) -> Derived:
    """The config of a rehearsal.

    Args:
        config: of the real run.
        data: the keys that `data.write` returns: where the chosen rows are.
        output_dir: of the rehearsal.
        callbacks: the whole list; those of the config are left out.
        changes: further keys; `GONE` takes one out.
    """
    wanted = {**NO_EVALUATION, **ALONE, **_LOGS, **_RATE, **_ROWS, **data, **changes, "output_dir": str(output_dir)}
    if config.given.get("cache_dir") and not uses_other_hub():
        wanted["cache_dir"] = GONE  # data sets are cached there too; `child.environment` says where the model is
    given, changed = replaced(config.given, wanted, NEUTRAL)
    given["obs"], given["callbacks"] = limits(config.settings), callbacks
    ours = {name_of(entry) for entry in callbacks}
    left_out = [name for name in map(name_of, config.callbacks) if name not in ours]
    return Derived(given, changed, left_out)


def replaced(given: Mapping, wanted: Mapping, neutral: tuple = ()) -> tuple[dict, dict]:
    """The keys of a config with others in their place, and what that changes.

    Args:
        wanted: `GONE` takes a key out.
        neutral: where a key is not given, one of these is no change.

    Returns:
        All keys, and key -> `{"from", "to"}`.
    """
    kept, changed = dict(given), {}
    for key, value in wanted.items():
        before = kept.pop(key, None)
        if value is not GONE:
            kept[key] = value
        if before != value and not (before is None and value in neutral):
            changed[key] = {"from": before, "to": value}
    return kept, changed


def limits(settings: Settings) -> dict:
    """What our callbacks read of the `obs:` block in any training, as it stands there."""
    found = {name: getattr(settings, name) for name in ("mask_range", "limit_gib", "margin_gib")}
    return {name: list(value) if name == "mask_range" else value for name, value in found.items() if value}


def uses_other_hub() -> bool:
    """Do models come from another hub than Hugging Face's? As `llamafactory.extras.misc.is_env_enabled` reads it."""
    names = ("USE_MODELSCOPE_HUB", "USE_OPENMIND_HUB")
    return any(os.environ.get(name, "0").lower() in ("true", "y", "1") for name in names)


def write_config(derived: Derived, path: Path, comment: str) -> None:
    """Write it as YAML, with a comment at the top."""
    import yaml

    text = yaml.safe_dump(derived.given, sort_keys=False, allow_unicode=True)
    path.write_text(f"### {comment}\n{text}", encoding="utf-8")


def name_of(entry: object) -> str:
    """The name in an item of `callbacks:`, whatever its form."""
    if isinstance(entry, dict):
        return str(entry.get("name") or next(iter(entry), ""))
    return str(entry)


def without(given: dict, keys: Iterable[str]) -> dict:
    """The mapping without some keys."""
    return {key: value for key, value in given.items() if key not in set(keys)}
