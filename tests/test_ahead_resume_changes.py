"""What a resume makes of a config that has changed since the checkpoints, over checkpoints that LlamaFactory made."""

import json
import shutil

import pytest
from ahead_config import effective as effective
from ahead_config import named, statuses
from ahead_resume_run import LATER, judge, settle
from ahead_resume_run import out as out
from ahead_resume_run import trained as trained

from llamafactory_obs.preflight.ahead.output_dir import check_output_dir
from llamafactory_obs.preflight.ahead.resume_changes import read_record


def test_the_same_config_goes_on(effective, out, model, data):
    checks = judge(effective, max_steps=8)
    assert named(checks, "resume_keys").status == "pass"
    left = named(checks, "resume_left")
    assert (left.status, left.value, left.want) == ("fail", 8, 8) and "nothing left to train" in left.detail
    assert named(judge(effective), "resume_left").detail.startswith("4 of 12 steps")


@pytest.mark.parametrize(
    ("keys", "name", "status", "words"),
    [
        ({"learning_rate": 1e-5}, "resume_ignored", "warn", "learning_rate 0.001 -> 1e-05: a resume ignores it"),
        ({"adam_beta2": 0.9, "weight_decay": 0.1}, "resume_ignored", "warn", "weight_decay 0.0 -> 0.1, adam_beta2"),
        ({"lr_scheduler_type": "linear"}, "resume_schedule", "warn", "lr_scheduler_type cosine -> linear"),
        ({"max_steps": 20}, "resume_schedule", "warn", "steps 8 -> 20"),
        ({"gradient_accumulation_steps": 2}, "resume_rows", "warn", "gradient_accumulation_steps 1 -> 2"),
        ({"seed": 1}, "resume_rows", "warn", "seed 42 -> 1"),
        ({"dataset": "text"}, "resume_data", "warn", "dataset rows -> text"),
        ({"template": "qwen"}, "resume_data", "warn", "template qwen3_nothink -> qwen"),
        ({"finetuning_type": "lora"}, "resume_model", "fail", "finetuning_type full -> lora"),
        ({"optim": "sgd"}, "resume_model", "fail", "optim adamw_torch_fused -> sgd"),
    ],
)
def test_a_changed_key(effective, out, keys, name, status, words):
    checks = judge(effective, **({"max_steps": 8} | keys))
    check = named(checks, name)
    assert check.status == status and words in check.detail
    assert {one.name for one in checks if one.name.startswith("resume_") and one.status != "pass"} - {
        "resume_left"
    } == {name}


def test_keys_of_another_method_do_not_count(effective, out):
    checks = judge(effective, max_steps=8, lora_rank=64, lora_alpha=7, lora_dropout=0.5)
    assert named(checks, "resume_keys").status == "pass"


def test_a_constant_rate_may_go_on_longer(effective, out):
    record = json.loads((out / "obs" / "run.json").read_text())
    record["config"]["resolved"]["training_args"]["lr_scheduler_type"] = "constant"
    (out / "obs" / "run.json").write_text(json.dumps(record))
    checks = judge(effective, max_steps=20, lr_scheduler_type="constant")
    assert named(checks, "resume_keys").status == "pass"


def test_without_a_record(effective, out):
    shutil.rmtree(out / "obs")
    checks = judge(effective, learning_rate=1e-5, max_steps=9, per_device_train_batch_size=1)
    assert statuses(checks)["resume_keys"] == "warn" and "no record" in named(checks, "resume_keys").detail
    assert "learning_rate 0.001 -> 1e-05" in named(checks, "resume_ignored").detail
    assert "steps 8 -> 9" in named(checks, "resume_schedule").detail
    assert "per_device_train_batch_size 2 -> 1" in named(checks, "resume_rows").detail
    assert set(statuses(judge(effective, max_steps=8))) & {"resume_ignored", "resume_schedule", "resume_rows"} == set()


def test_another_method_without_a_record(effective, out):
    shutil.rmtree(out / "obs")
    check = named(judge(effective, finetuning_type="lora"), "resume_model")
    assert check.status == "fail" and "finetuning_type full -> lora" in check.detail
    assert "resume_model" not in statuses(judge(effective, finetuning_type="freeze"))
    (out / "checkpoint-8" / "model.safetensors").rename(out / "checkpoint-8" / "adapter_model.safetensors")
    (out / "checkpoint-8" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4}')
    settle(out)
    check = named(judge(effective, finetuning_type="lora", lora_rank=8), "resume_model")
    assert check.status == "fail" and check.detail.startswith("lora_rank 4 -> 8")
    assert "resume_model" not in statuses(judge(effective, finetuning_type="lora", lora_rank=4))
    adapter = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
    (out / "checkpoint-8" / "adapter_config.json").write_text(json.dumps(adapter))
    settle(out)
    check = named(judge(effective, finetuning_type="lora", lora_rank=4, lora_alpha=64), "resume_scale")
    assert check.status == "fail" and check.detail.startswith("lora_alpha 8 -> 64")
    assert "resume_scale" not in statuses(judge(effective, finetuning_type="lora", lora_rank=4, lora_alpha=8))


def test_what_is_left_of_epochs(effective, out):
    """48 rows in batches of 2: 24 steps an epoch; 8 of them were made."""
    for epochs, wanted, status in ((2.0, 48, "pass"), (0.5, 12, "pass"), (0.3, 8, "fail")):
        checks = judge(effective, max_steps=None, num_train_epochs=epochs)
        assert (named(checks, "resume_left").status, named(checks, "resume_left").want) == (status, wanted)
        assert ("resume_schedule" in statuses(checks)) == (wanted != 8)  # the first part was to end at 8
    checks = judge(effective, max_steps=None, num_train_epochs=2.0, gradient_accumulation_steps=2)
    assert named(checks, "resume_left").status == "warn"


def test_packed_rows_are_counted_by_the_checkpoint(effective, out):
    """240 rows packed into 48 sequences: 24 steps an epoch as the checkpoint says, not 120."""
    record = json.loads((out / "obs" / "run.json").read_text())
    record["config"]["resolved"]["data_args"] |= {"packing": True, "cutoff_len": 127}  # LlamaFactory takes one off
    record["config"]["resolved"]["training_args"] |= {"max_steps": -1, "num_train_epochs": 1 / 3}
    (out / "obs" / "run.json").write_text(json.dumps(record))
    with effective(240, **LATER | {"max_steps": None, "num_train_epochs": 1 / 3, "packing": True}) as run:
        assert run.total_steps == 40
        checks = check_output_dir(run)
    assert "resume_schedule" not in statuses(checks) and named(checks, "resume_left").want == 8


def test_a_record_that_is_torn(tmp_path):
    (tmp_path / "run.json").write_text('{"config": ')
    assert read_record(tmp_path / "run.json") == {} == read_record(tmp_path / "none.json")


def test_the_optimizer_knows_the_rate_better_than_the_record(effective, out):
    """The record of a resume that asked for 1e-5 in vain."""
    record = json.loads((out / "obs" / "run.json").read_text())
    record["config"]["resolved"]["training_args"]["learning_rate"] = 1e-5
    (out / "obs" / "run.json").write_text(json.dumps(record))
    assert "resume_ignored" not in statuses(judge(effective, max_steps=8))
    assert "0.001 -> 1e-05" in named(judge(effective, max_steps=8, learning_rate=1e-5), "resume_ignored").detail
