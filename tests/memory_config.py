"""Models for the memory estimate that consist of a config alone, and run configs for them."""

import json
from pathlib import Path

import yaml

#: Qwen3-4B's config.json as published, without what has no bearing on shapes
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
#: the same kind, small enough to be traced in a second; deep enough to be continued from fewer layers
SMALL = QWEN3_4B | {
    "head_dim": 32,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 8,
    "num_hidden_layers": 7,
    "num_key_value_heads": 2,
    "vocab_size": 16384,
}

#: and with the least to trace
TWO_LAYERS = SMALL | {"num_hidden_layers": 2}


def config_only(folder: Path, config: dict) -> Path:
    """A model folder that holds a config.json and no weight."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def run_yaml(folder: Path, model: Path | str, **overrides) -> Path:
    """A LoRA run config for it; the data set is named and never read."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "dataset_info.json").write_text('{"rows": {"file_name": "rows.json"}}', encoding="utf-8")
    given = {
        "model_name_or_path": str(model),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": 16,
        "lora_target": "all",
        "dataset": "rows",
        "dataset_dir": str(folder / "data"),
        "template": "qwen3_nothink",
        "cutoff_len": 256,
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "bf16": True,
        "report_to": "none",
        **overrides,
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in given.items() if value is not None}))
    return path
