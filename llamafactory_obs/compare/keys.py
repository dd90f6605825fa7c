"""Which key of an identity or a config belongs where, which weighs most, and which does not reach the numbers."""

import re

#: keys that say where and how a run is stored, shown, watched or served, not what it learns
FOLDED = re.compile(
    r"output_dir|overwrite_.*|resume_from_checkpoint|run_name|report_to|project|.*logging_.*|log_.*|save_.*|"
    r"eval_(?!dataset).*|per_device_eval_.*|do_(train|eval|predict)|prediction_loss_only|include_.*|batch_eval_metrics|"
    r"plot_loss|callbacks|obs|dataset_dir|media_dir|tokenized_path|preprocessing_.*|buffer_size|.*num_workers|"
    r"dataloader_(pin|prefetch|persistent).*|disable_tqdm|ddp_(timeout|backend|bucket.*|broadcast.*|find.*|static.*)|"
    r"(use_)?swanlab.*|wandb.*|trackio_.*|hub_.*|.*_hub_token|push_to_hub|trust_remote_code|cache_dir|ray_.*|"
    r"load_best_model_at_end|metric_for_best_model|greater_is_better|skip_memory_metrics|local_rank|master_(addr|port)|"
    r".*_port|debug|profile.*|enable_torch_profiler|export_.*|vllm_.*|sglang_.*|infer_.*|offload_folder|use_kv_cache|"
    r"print_param_status|predict_with_generate|generation_.*|label_names|low_cpu_mem_usage|torch_empty_cache_steps|"
    r"do_sample|temperature|top_[pk]|num_beams|max_length|max_new_tokens|repetition_penalty|length_penalty|"
    r"skip_special_tokens|enable_jit_checkpoint|plugin.*|restore_callback.*|_n_gpu|n_gpu|device.*|image_.*|video_.*|"
    r"audio_.*|crop_to_patches|use_audio_in_video"
)
#: settings that count only where another one has this value
NEEDS = (
    (re.compile(r"(lora|pissa)\w*|additional_target|use_(rslora|dora)|create_new_\w+"), "finetuning_type", ("lora",)),
    (re.compile(r"freeze_.*"), "finetuning_type", ("freeze",)),
    (re.compile(r"oft_.*|module_dropout"), "finetuning_type", ("oft",)),
    (re.compile(r"pref_.*|dpo_.*|simpo_.*|ref_.*|ld_alpha"), "stage", ("dpo",)),
    (re.compile(r"kto_.*"), "stage", ("kto",)),
    (re.compile(r"ppo_.*|reward_.*"), "stage", ("ppo",)),
)  # fmt: skip
#: the first of each group, in this order; others by name
FIRST = (
    "rows.sha256",
    "rows.rows",
    "rows.tokens",
    "weights.sha256",
    "adapter_weights.sha256",
    "name_or_path",
    "config_sha256",
    "model_name_or_path",
    "adapter_name_or_path",
    "template",
    "template_sha256",
    "stage",
    "finetuning_type",
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "lora_rank",
    "lora_alpha",
    "lora_target",
    "lr_scheduler_type",
    "warmup_ratio",
    "warmup_steps",
    "optim",
    "weight_decay",
    "max_grad_norm",
    "cutoff_len",
    "dataset",
    "packing",
    "seed",
    "data_seed",
    "compute",
    "world_size",
    "global_batch",
    "engine",
    "sha",
    "dirty",
    "diff_sha256",
    "gpus",
    "torch",
    "transformers",
    "llamafactory",
    "peft",
    "trl",
    "accelerate",
    "flash-attn",
    "deepspeed",
    "liger-kernel",
    "unsloth",
    "bitsandbytes",
)
TEMPLATE = ("template", "tool_format", "default_system", "enable_thinking", "preserve_thinking", "template_sha256")
#: of `data.settings`, what changes the speed of loading alone
_LOADING = ("buffer_size", "tokenized_path", "overwrite_cache", "preprocessing_batch_size", "streaming")
_SEEDS = ("seed", "data_seed", "full_determinism")
_PRECISION = ("bf16", "fp16", "pure_bf16", "fp8", "tf32", "compute_dtype", "quantization_bit")


def group_of_setting(key: str) -> str:
    """The group of a training argument."""
    if key in TEMPLATE:
        return "template"
    if key in _SEEDS:
        return "seed"
    if key in _PRECISION:
        return "precision"
    if key in ("deepspeed", "fsdp", "fsdp_config") or key.startswith("fsdp_"):
        return "world"
    if key in ("dataset", "eval_dataset", "max_samples", "val_size", "mix_strategy", "interleave_probs", "cutoff_len"):
        return "data"
    if key in ("packing", "neat_packing", "mask_history", "train_on_prompt", "ignore_pad_token_for_loss"):
        return "data"
    return "model" if key in ("model_name_or_path", "adapter_name_or_path", "flash_attn") else "config"


def place(key: str) -> tuple[str, str] | None:
    """(group, shorter key) of a dotted key of an identity; None for one that follows from others."""
    section, _, rest = key.partition(".")
    if section == "data":
        return _of_data(rest)
    if section == "model":
        return _of_model(rest)
    if section == "code":
        return ("code", rest) if rest in ("sha", "dirty", "diff_sha256") else None
    if section == "packages":
        return None if rest.startswith(("sources", "list", "main", "sha256")) else ("packages", rest)
    if section == "seeds":
        return None if rest == "data_seed_used" else ("seed", rest)
    if section == "precision":
        return "precision", rest
    if section == "world":
        kept = ("world_size", "nodes", "engine", "global_batch", "deepspeed", "fsdp")
        return ("world", rest) if rest.split(".")[0] in kept else None
    if section == "hardware":
        kept = ("gpus", "gpu_count", "accelerator", "driver", "cuda_runtime", "cudnn", "nccl", "cpu", "machine")
        return ("hardware", rest) if rest.split(".")[0] in kept and not rest.endswith("uuid") else None
    if section == "determinism":
        return ("seed", key) if rest.startswith("environment") else None
    return None


def _of_data(rest: str) -> tuple[str, str] | None:
    first, _, more = rest.partition(".")
    if first == "settings":
        name = more.split(".")[0]
        if name in _LOADING:
            return None
        return ("template" if name in TEMPLATE else "data"), more
    if rest == "template_sha256":
        return "template", rest
    if first == "rows":
        return ("data", rest) if more in ("", "sha256", "rows", "tokens") else None
    if first == "files":
        return ("data", rest) if not more or (more.endswith(".sha256") and ".files." not in rest) else None
    if first == "datasets":
        return None if more.endswith(("entry_sha256", "location")) else ("data", rest)
    return None


def _of_model(rest: str) -> tuple[str, str] | None:
    first = rest.split(".")[0]
    if rest.startswith("tokenizer."):
        if "chat_template" in rest:
            return None if rest.startswith("tokenizer.files.") else ("template", rest)
        return None if rest.startswith("tokenizer.files.") else ("model", rest)
    if first in ("weights", "adapter_weights"):
        return ("model", rest) if (rest.endswith(".sha256") and ".files." not in rest) or rest == first else None
    if first == "parameters":
        return ("model", rest) if rest == "parameters.trainable" else None
    return None if first in ("attn_requested", "revision") else ("model", rest)


def rank(key: str) -> tuple[int, str]:
    """Where a key stands within its group."""
    return (FIRST.index(key) if key in FIRST else len(FIRST), key)


def counts(key: str, a: dict, b: dict) -> bool:
    """Does a setting reach the numbers of any of two runs with these settings?"""
    if FOLDED.fullmatch(key):
        return False
    for names, other, values in NEEDS:
        if names.fullmatch(key):
            return any(one.get(other, values[0]) in values for one in (a, b))
    return True
