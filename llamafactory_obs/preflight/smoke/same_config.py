"""Was it this config that made the smoke run? A smoke run of another one proves nothing."""

import dataclasses
from pathlib import Path

from ... import texts
from ..result import ERROR, FAIL, PASS, WARN, Check
from .ended import run_it
from .evidence import Evidence, truth

NAME = "same_config"

#: Keys that change neither a token, nor the memory of a training step, nor what a checkpoint holds. Every other key
#: must agree, one that is not known here too.
_FREE = """
output_dir overwrite_output_dir run_name project logging_dir report_to plot_loss logging_strategy logging_steps
logging_first_step log_on_each_node logging_nan_inf_filter log_level log_level_replica disable_tqdm print_param_status
include_num_input_tokens_seen include_effective_tokens_per_second skip_memory_metrics trackio_space_id
use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir
swanlab_lark_webhook_url swanlab_lark_secret
max_steps num_train_epochs max_samples lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio
save_steps save_strategy save_total_limit save_on_each_node load_best_model_at_end metric_for_best_model
greater_is_better early_stopping_steps resume_from_checkpoint ignore_data_skip
do_train do_eval do_predict eval_strategy eval_steps eval_delay eval_on_start eval_dataset val_size
eval_on_each_dataset per_device_eval_batch_size eval_accumulation_steps prediction_loss_only compute_accuracy
batch_eval_metrics bf16_full_eval fp16_full_eval predict_with_generate generation_max_length generation_num_beams
overwrite_cache preprocessing_batch_size preprocessing_num_workers data_shared_file_system
dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
seed data_seed full_determinism disable_shuffling ddp_timeout use_cpu
push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
hf_hub_token ms_hub_token om_hub_token cache_dir low_cpu_mem_usage
use_fast_tokenizer do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty
length_penalty infer_backend infer_dtype vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config
export_dir export_size export_device export_legacy_format export_hub_model_id
local_rank master_addr master_port ray_num_workers ray_run_name ray_init_kwargs
callbacks obs
"""
FREE = frozenset(_FREE.split())
#: keys that decide how the loss moves and nothing else: another value is a warning
_OPTIMISATION = frozenset(
    ["learning_rate", "weight_decay", "max_grad_norm", "adam_beta1", "adam_beta2", "adam_epsilon", "loraplus_lr_ratio"]
)
#: lists whose order says nothing
_SETS = frozenset(("lora_target", "oft_target", "additional_target", "dataset", "freeze_trainable_modules"))
_PATHS = frozenset(("model_name_or_path", "dataset_dir", "media_dir", "tokenized_path"))


def check_same_config(run: Evidence, defaults: dict | None = None) -> Check:
    """The recorded config and this one agree in all that changes tokens, memory or the checkpoint.

    Args:
        run: the smoke run.
        defaults: key -> LlamaFactory's default; None asks LlamaFactory.
    """
    recorded = run.identity("config", "given")
    note = ""
    if isinstance(recorded, dict) and recorded:
        recorded = _undone(recorded, run.marker.get("changed"))
    else:
        recorded = _resolved(run, run.config.given)
        note = texts.text("smoke.same.as_made")
    if not recorded:
        text = texts.text("smoke.same.not_recorded")
        return Check(NAME, ERROR, None, 0, text, run_it(run.config))
    differs = differences(recorded, run.config.given, llamafactory_defaults() if defaults is None else defaults)
    grave = {key: pair for key, pair in differs.items() if key not in _OPTIMISATION}
    if grave:
        text = texts.text("smoke.same.another", said=_said(grave), note=note)
        return Check(NAME, FAIL, len(grave), 0, text, run_it(run.config))
    if differs:
        text = texts.text("smoke.same.only_speed", said=_said(differs))
        return Check(NAME, WARN, len(differs), 0, text + note, run_it(run.config))
    return Check(NAME, PASS, 0, 0, texts.text("smoke.same.same", note=note))


def differences(recorded: dict, now: dict, defaults: dict) -> dict[str, tuple[object, object]]:
    """Key -> (value in the smoke run, value now), where that changes tokens, memory, the checkpoint or the learning.

    A key that is left out has LlamaFactory's default.
    """
    found = {}
    for key in sorted((recorded.keys() | now.keys()) - FREE):
        there, here = recorded.get(key, defaults.get(key)), now.get(key, defaults.get(key))
        if key == "gradient_accumulation_steps":
            if not _holds_less(there, here):
                found[key] = (there, here)
        elif not _equal(key, there, here):
            found[key] = (there, here)
    return found


def llamafactory_defaults() -> dict:
    """Key -> default, of all arguments that LlamaFactory takes for training."""
    from llamafactory.hparams.parser import _TRAIN_ARGS

    found = {}
    for kind in _TRAIN_ARGS:
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                found[field.name] = field.default
    return found


def _holds_less(there: object, here: object) -> bool:
    """Gradients of earlier micro-batches lie in memory beside the next one's activations from 2 steps on."""
    try:
        return int(there) > 1 or int(here) <= 1
    except (TypeError, ValueError):
        return there == here


def _equal(key: str, there: object, here: object) -> bool:
    there, here = _plain(there), _plain(here)
    if key in _SETS:
        there, here = (sorted(one) if isinstance(one, list) else one for one in (there, here))
    if there == here:
        return True
    if key in _PATHS and isinstance(there, str) and isinstance(here, str):
        return Path(there).resolve() == Path(here).resolve()
    return False


def _plain(value: object) -> object:
    """`1e-4`, 0.0001 and `"0.0001"` are one value, so are `q_proj,v_proj` and a list of the two."""
    if value is None or value == "" or value == []:
        return None
    value = getattr(value, "value", value)  # an enum's member
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        words = [str(one).strip() for one in value]
        return words[0] if len(words) == 1 else words
    text = str(value).strip()
    if text.lower() in ("true", "false", "yes", "no"):
        return truth(text)
    if text.lower() in ("null", "none"):
        return None
    if "," in text:
        return [part.strip() for part in text.split(",")]
    try:
        return float(text)
    except ValueError:
        return text


def _undone(recorded: dict, changed: object) -> dict:
    """The config that a smoke run was made from: what `--run-smoke` changed, and its run really used, taken back."""
    found = dict(recorded)
    for key, pair in changed.items() if isinstance(changed, dict) else ():
        if isinstance(pair, dict) and _equal(key, found.get(key), pair.get("to")):
            found[key] = pair.get("from")
    return {key: value for key, value in found.items() if value is not None}


def _resolved(run: Evidence, now: dict) -> dict:
    """What LlamaFactory made of the recorded config, for the keys of this one."""
    groups = run.identity("config", "resolved")
    found: dict = {}
    for group in groups.values() if isinstance(groups, dict) else ():
        found |= group if isinstance(group, dict) else {}
    return {key: found[key] for key in now if key in found}


def _said(differs: dict[str, tuple[object, object]], most: int = 6) -> str:
    words = [
        texts.text("smoke.same.there_here", key=key, there=_short(there), here=_short(here))
        for key, (there, here) in differs.items()
    ]
    return "; ".join(words[:most]) + (
        texts.text("smoke.same.more", count=len(words) - most) if len(words) > most else ""
    )


def _short(value: object) -> str:
    text = "unset" if value is None else str(getattr(value, "value", value))
    return text if len(text) <= 60 else f"...{text[-57:]}"
