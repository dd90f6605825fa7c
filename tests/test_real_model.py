"""SmolLM2-135M LoRA on real tool-calling data, plain and with 2 processes, against independent references."""

import math

import pytest
from conftest import SHARED
from test_grad_norm import DenseNorm
from test_label_mask import Hand
from test_ranks import torchrun

from llamafactory_obs import load_record

pytestmark = [pytest.mark.slow, pytest.mark.shared]
ALL = ["grad_norm_spike", {"layer_norms": {"every": 1, "weights_every": 5}}, "label_mask", {"vram": {"limit_gib": 24}}]


def config(model, output_dir, **overrides) -> dict:
    return {
        "model_name_or_path": str(model),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "all",
        "dataset": "glaive_toolcall_zh_demo,identity",
        "dataset_dir": str(SHARED / "data"),
        "template": "smollm2",
        "cutoff_len": 256,
        "max_samples": 40,
        "output_dir": str(output_dir),
        "logging_steps": 5,
        "save_steps": 10,
        "max_steps": 10,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-4,
        "report_to": "none",
        "overwrite_output_dir": True,
        "disable_tqdm": True,
        "callbacks": ALL,
        **overrides,
    }


def test_ten_steps_plain_and_with_two_processes(smollm2, tmp_path):
    from llamafactory.train.tuner import run_exp

    dense, hand = DenseNorm(), Hand()
    run_exp(config(smollm2, tmp_path / "one", per_device_train_batch_size=4), callbacks=[dense, hand])
    one = load_record(tmp_path / "one")
    steps = one.steps
    assert steps["step"] == list(range(1, 11)) and all(None not in column for column in steps.values())
    assert steps["train/grad_norm"] == pytest.approx(dense.norms, rel=1e-5)
    assert [steps["train/grad_norm"][4], steps["train/grad_norm"][9]] == pytest.approx(dense.logged, rel=1e-6)
    for key, name in [
        ("cells", "cells"),
        ("tokens", "tokens"),
        ("supervised_tokens", "supervised"),
        ("samples", "samples"),
    ]:
        assert steps[f"data/{key}"] == hand.column(name)
    for row in one.layers.rows:
        assert math.hypot(*row["grad_norm"]) == pytest.approx(steps["train/grad_norm"][row["step"] - 1], rel=1e-3)
    assert len(one.layers.names) == 60 and len(one.layers.modules) == 14
    assert one.run["model"]["parameters"]["trainable"] == 2442240
    assert one.run["data"]["rows"]["rows"] == 80 and len(one.run["data"]["datasets"]) == 2
    assert (tmp_path / "one" / "checkpoint-10" / "trainer_state.json").is_file()

    done = torchrun("train", config(smollm2, tmp_path / "two"))
    assert done.returncode == 0, done.stderr[-3000:]
    two = load_record(tmp_path / "two")
    for key in ("tokens", "supervised_tokens", "samples", "max_length", "min_supervised_ratio"):
        assert two.steps[f"data/{key}"] == steps[f"data/{key}"], key
    for key in ("train/loss", "train/grad_norm"):
        assert two.steps[key] == pytest.approx(steps[key], rel=2e-3), key
