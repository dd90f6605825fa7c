"""A real model small enough to train in a second, and a LlamaFactory config for it; real data made here."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def tiny_model(folder: Path, layers: int = 3) -> Path:
    """A random Qwen3 of about 70k parameters with its own byte-level BPE, saved to `folder`."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 5, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
        Qwen3ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def conversations(count: int) -> list[dict]:
    """Rows whose text carries their own number, of different lengths."""
    rows = []
    for i in range(count):
        answer = " ".join(WORDS[(i + k) % len(WORDS)] for k in range(3 + i % 7))
        rows.append({"instruction": f"row {i}: say {WORDS[i % len(WORDS)]}", "input": "", "output": answer})
    return rows


def tiny_data(folder: Path, count: int = 48) -> Path:
    """A dataset folder for LlamaFactory: `rows` (sft), `pairs` (dpo, rm), `votes` (kto), `text` (pt)."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = conversations(count)
    pairs = [{**row, "chosen": row["output"], "rejected": "no no"} for row in rows]
    votes = [{**row, "label": i % 2 == 0} for i, row in enumerate(rows)]
    info = {
        "rows": {"file_name": "rows.json"},
        "pairs": {
            "file_name": "pairs.json",
            "ranking": True,
            "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"},
        },
        "votes": {
            "file_name": "votes.json",
            "columns": {"prompt": "instruction", "query": "input", "response": "output", "kto_tag": "label"},
        },
        "text": {"file_name": "text.json", "columns": {"prompt": "output"}},
    }
    for name, content in {"rows": rows, "pairs": pairs, "votes": votes, "text": rows, "dataset_info": info}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def tiny_config(model: Path, data: Path, output_dir: Path, **overrides) -> dict:
    """A complete LlamaFactory config: full fine-tuning, 6 steps on `rows`; a None override removes the key."""
    config = {
        "model_name_or_path": str(model),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "dataset": "rows",
        "dataset_dir": str(data),
        "template": "qwen3_nothink",
        "cutoff_len": 128,
        "output_dir": str(output_dir),
        "logging_steps": 1,
        "save_steps": 100,
        "max_steps": 6,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "report_to": "none",
        "overwrite_output_dir": True,
        "disable_tqdm": True,
        "seed": 42,
        **overrides,
    }
    return {key: value for key, value in config.items() if value is not None}
