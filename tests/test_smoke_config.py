"""Was the smoke run of this config, how full was the card, and were the longest rows in it?"""

import json

import pytest
import smoke_folder

from llamafactory_obs.preflight.smoke.memory import check_longest, check_peak
from llamafactory_obs.preflight.smoke.same_config import check_same_config, differences, llamafactory_defaults


@pytest.mark.parametrize(
    "changes",
    [
        {"cutoff_len": 64},
        {"template": "llama3"},
        {"dataset": "text"},
        {"model_name_or_path": "/elsewhere/model"},
        {"per_device_train_batch_size": 4},
        {"gradient_accumulation_steps": 2},
        {"finetuning_type": "full"},
        {"lora_rank": 64},
        {"lora_target": "q_proj"},
        {"quantization_bit": 4},
        {"bf16": True},
        {"disable_gradient_checkpointing": True},
        {"packing": True},
        {"optim": "adafactor"},
        {"deepspeed": "z3.json"},
        {"save_only_model": True},
        {"some_key_of_tomorrow": 1},
    ],
)
def test_what_changes_tokens_memory_or_the_checkpoint_is_another_config(lora_smoke, changes):
    check = check_same_config(lora_smoke.evidence(**changes))
    (key,) = changes
    assert check.status == "fail" and key in check.detail and check.value == 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_steps": 1000, "save_steps": 200, "output_dir": "elsewhere", "overwrite_output_dir": False},
        {"lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "num_train_epochs": 3},
        {"eval_strategy": "steps", "eval_steps": 50, "val_size": 0.1, "per_device_eval_batch_size": 1},
        {"report_to": "wandb", "run_name": "a", "logging_steps": 10, "callbacks": ["vram"]},
        {"save_only_model": False, "bf16": False, "packing": None, "quantization_bit": None},  # the defaults in words
        {"lora_rank": "4", "lora_target": ["all"], "learning_rate": "1e-3"},
    ],
)
def test_what_may_differ(lora_smoke, changes):
    check = check_same_config(lora_smoke.evidence(**changes))
    assert check.status == "pass", check.detail


def test_another_learning_rate_is_a_warning(lora_smoke):
    check = check_same_config(lora_smoke.evidence(learning_rate=1e-2))
    assert check.status == "warn" and "0.001 there, 0.01 here" in check.detail


def test_accumulation_over_one_holds_gradients_beside_activations():
    step = "gradient_accumulation_steps"
    assert not differences({step: 16}, {step: 4}, {})
    assert not differences({step: 16}, {step: 1}, {})
    assert differences({step: 1}, {step: 16}, {})
    assert differences({}, {step: 2}, llamafactory_defaults())


def test_lists_and_words_are_compared_by_what_they_mean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not differences({"lora_target": "q_proj, v_proj"}, {"lora_target": ["v_proj", "q_proj"]}, {})
    assert not differences({"dataset_dir": "data"}, {"dataset_dir": str(tmp_path / "data")}, {})
    assert differences({"dataset": "a,b"}, {"dataset": "a"}, {})
    assert not differences({"interleave_probs": "0.7,0.3"}, {"interleave_probs": [0.7, 0.3]}, {})
    assert differences({"interleave_probs": "0.7,0.3"}, {"interleave_probs": "0.3,0.7"}, {})


def test_what_the_smoke_run_itself_changed_is_taken_back(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    real = {"dataset": "pairs", "dataset_dir": "/data", "streaming": True}
    given = lora_smoke.evidence().identity("config", "given")
    pairs = {key: {"from": value, "to": given.get(key)} for key, value in real.items()}
    (copy.folder / "smoke_run.json").write_text(json.dumps({"kind": "smoke", "changed": pairs}))
    assert check_same_config(copy.evidence(**real)).status == "pass"
    assert check_same_config(copy.evidence(**real, cutoff_len=99)).status == "fail"
    assert check_same_config(copy.evidence()).status == "fail"
    assert check_same_config(lora_smoke.evidence(**real)).status == "fail"


def test_a_run_whose_config_is_not_on_record(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    copy.identity("config", "given", value=None)
    assert check_same_config(copy.evidence()).status == "pass"
    assert check_same_config(copy.evidence(cutoff_len=64)).status == "fail"
    copy.identity("config", value={"given": None, "resolved": None})
    assert check_same_config(copy.evidence()).status == "error"


def test_the_peak_counts_what_others_hold(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    smoke_folder.on_gpu(copy, peak=18.0, beside=4.5)
    run = copy.evidence()
    assert run.on_cpu is False
    fine = check_peak(run, 24.0, 1.0, 17.0)
    assert fine.status == "pass" and fine.value == 22.5 and fine.want == "<= 23"
    assert "18.00 reserved" in fine.detail and "4.50 by others" in fine.detail and "estimate was 17.00" in fine.detail
    full = check_peak(run, 23.0, 1.0, None)
    assert full.status == "fail" and "0.50 are" in full.detail and "1. per_device_train_batch_size: 1" in full.fix
    assert "vLLM" in full.fix  # stopping it would be enough
    assert "vLLM" not in check_peak(run, 12.0, 1.0, None).fix


def test_a_peak_that_is_no_number_is_never_a_pass(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    smoke_folder.on_gpu(copy, peak=float("nan"))
    copy.identity("hardware", "gpu_count", value=1)
    assert check_peak(copy.evidence(), 24.0, 1.0, None).status == "error"


def test_the_batch_of_the_peak_is_named(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    smoke_folder.on_gpu(copy)
    copy.edit("events.jsonl", lambda row: row.update(kind="x") if row["kind"] == "memory_peak" else None)
    assert "reached in step 7" in check_peak(copy.evidence(), 24.0, 1.0, None).detail
    copy.event(kind="memory_peak", step=7, evidence={"micro_batches": [[2, 2048], [2, 512]]})
    assert "step 7 by a batch of 2 x 2048 + 2 x 512" in check_peak(copy.evidence(), 24.0, 1.0, None).detail


def test_without_nvml_the_others_are_said_to_be_unseen(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    smoke_folder.on_gpu(copy, beside=None)
    check = check_peak(copy.evidence(), 24.0, 1.0, None)
    assert check.status == "warn" and check.value == 18.0 and "not seen" in check.detail


def test_a_gpu_run_without_the_vram_callback_is_an_error(lora_smoke, tmp_path):
    assert check_peak(lora_smoke.evidence(), 24.0, 1.0, None).status == "skipped"
    copy = lora_smoke.copy(tmp_path)
    copy.edit("steps.jsonl", lambda row: row.pop("system/rss_gib", None))
    copy.identity("hardware", "gpu_count", value=1)
    check = check_peak(copy.evidence(), 24.0, 1.0, None)
    assert check.status == "error" and "vram" in check.fix


def test_the_longest_row_must_have_been_seen(lora_smoke, tmp_path):
    run = lora_smoke.evidence()
    seen = int(max(run.column("data/max_length").values()))
    assert check_longest(run, seen).status == "pass"
    short = check_longest(run, seen + 1)
    assert short.status == "fail" and (short.value, short.want) == (seen, seen + 1)
    assert check_longest(run, None).status == "error"
    packed = check_longest(lora_smoke.evidence(packing=True), None)
    assert packed.status == "pass" and packed.value == 128
    copy = lora_smoke.copy(tmp_path)
    copy.edit("steps.jsonl", lambda row: row.pop("data/max_length", None))
    copy.edit("events.jsonl", lambda row: row.update(kind="x") if row["kind"] == "memory_peak" else None)
    assert check_longest(copy.evidence(), seen).status == "error"
    copy.event(kind="memory_peak", evidence={"longest_sequence": 128})
    assert check_longest(copy.evidence(), 121).status == "pass"  # padded to a multiple of 8
    assert check_longest(copy.evidence(), 122).status == "fail"


def test_the_marker_knows_the_longest_row_too(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    (copy.folder / "smoke_run.json").write_text(json.dumps({"kind": "smoke", "longest": {"length": 9999}}))
    check = check_longest(copy.evidence(), None)
    assert check.status == "fail" and check.want == 9999
    (copy.folder / "smoke_run.json").write_text(json.dumps({"kind": "smoke", "longest": 3, "changed": [1]}))
    assert check_longest(copy.evidence(), None).status == "error"
    assert check_same_config(copy.evidence()).status == "pass"
