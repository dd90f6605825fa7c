"""What becomes of `output_dir`, over checkpoints that LlamaFactory made."""

import json
import os
import shutil

import pytest
from ahead_config import effective, named, statuses  # noqa: F401

from llamafactory_obs.preflight.ahead.output_dir import check_output_dir
from llamafactory_obs.preflight.ahead.resume_changes import read_record
from llamafactory_obs.preflight.ahead.template import check_saved_template

torch = pytest.importorskip("torch")

FIRST = {"max_steps": 8, "save_steps": 4, "callbacks": ["grad_norm_spike"], "lr_scheduler_type": "cosine"}
FIRST |= {"warmup_steps": 2, "overwrite_output_dir": None, "val_size": None, "eval_strategy": None, "eval_steps": None}
LATER = FIRST | {"max_steps": 12}


@pytest.fixture(scope="module")
def trained(llamafactory, model, data, tmp_path_factory):
    """8 steps with a record; checkpoint-4 and checkpoint-8."""
    from llamafactory.train.tuner import run_exp
    from tiny import tiny_config

    out = tmp_path_factory.mktemp("trained") / "out"
    run_exp(tiny_config(model, data, out, **FIRST))
    return out


@pytest.fixture
def out(trained, tmp_path):
    """A copy of it, where the configs of `effective` save to; quiet since a minute."""
    shutil.copytree(trained, tmp_path / "out")
    return settle(tmp_path / "out")


def settle(out):
    """Nothing was written a moment ago: a folder that changes is taken for one that is being saved or deleted."""
    for folder in (out, *out.glob("checkpoint-*")):
        state = folder / "trainer_state.json"
        os.utime(folder, (state.stat().st_mtime, state.stat().st_mtime))
    return out


def judge(effective, **overrides):  # noqa: F811
    with effective(**(LATER | overrides)) as run:
        return check_output_dir(run)


# ---- the four combinations, and their kind --------------------------------------------------------------------------


def test_a_new_folder(effective, tmp_path):  # noqa: F811
    for overwrite in (True, None):
        (check,) = judge(effective, overwrite_output_dir=overwrite)
        assert (check.status, check.value) == ("pass", "new") and "starts new" in check.detail
    (tmp_path / "out").mkdir()
    (check,) = judge(effective)
    assert check.status == "pass" and "no checkpoint in output_dir" in check.detail


def test_names_that_are_no_checkpoint(effective, out):  # noqa: F811
    for name in ("checkpoint-best", "tmp-checkpoint-10", "checkpoint-", "checkpoint-10.bak"):
        shutil.copytree(out / "checkpoint-8", out / name)
    settle(out)
    (out / "checkpoint-12").write_text("a file")
    assert judge(effective)[0].value == "checkpoint-8"
    asked = judge(effective, resume_from_checkpoint=str(out / "checkpoint-best"))
    assert (asked[0].status, asked[0].value) == ("pass", "checkpoint-best")


def test_a_part_that_cannot_be_judged_hides_no_other(effective, out, monkeypatch):  # noqa: F811
    def broken(run, checkpoint):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("llamafactory_obs.preflight.ahead.output_dir.check_changes", broken)
    found = statuses(judge(effective))
    assert (found["output_dir"], found["resume_state"], found["resume_keys"]) == ("warn", "pass", "error")


def test_a_silent_resume(effective, out):  # noqa: F811
    checks = judge(effective, max_steps=8, save_steps=4)
    assert statuses(checks)["output_dir"] == "warn" and "will resume from checkpoint-8" in checks[0].detail
    asked = judge(effective, resume_from_checkpoint=str(out / "checkpoint-8"), max_steps=12)
    assert (asked[0].status, asked[0].value) == ("pass", "checkpoint-8")
    assert judge(effective, resume_from_checkpoint=True)[0].value == "checkpoint-8"


def test_overwriting(effective, out):  # noqa: F811
    (check,) = judge(effective, overwrite_output_dir=True)
    assert check.status == "warn" and "trainer_log.jsonl of the run before will be deleted" in check.detail
    assert "2 checkpoints (checkpoint-4 to checkpoint-8)" in check.detail
    both = judge(effective, overwrite_output_dir=True, resume_from_checkpoint=str(out / "checkpoint-8"))
    assert both[0].status == "warn" and "deletes trainer_log.jsonl" in both[0].detail
    (off,) = judge(effective, resume_from_checkpoint=False)
    assert off.value == "new" and off.status == "warn"


def test_a_folder_with_a_model_and_no_checkpoint(effective, out):  # noqa: F811
    for name in ("checkpoint-4", "checkpoint-8"):
        shutil.rmtree(out / name)
    (check,) = judge(effective)
    assert (check.status, check.value) == ("fail", "refused") and "model.safetensors" in check.detail
    from llamafactory.train.tuner import run_exp  # and so it does

    with pytest.raises(ValueError, match="not empty"), effective(**LATER) as run:
        run_exp(dict(run.config.given))


def test_a_path_outside_and_one_that_is_not_there(effective, out, tmp_path):  # noqa: F811
    shutil.copytree(out / "checkpoint-8", tmp_path / "other" / "checkpoint-8")
    shutil.rmtree(out)
    checks = judge(effective, resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-8"))
    assert checks[0].status == "warn" and "outside output_dir" in checks[0].detail
    checks = judge(effective, resume_from_checkpoint=str(tmp_path / "nowhere"))
    assert checks[0].status == "fail" and "no such folder" in checks[0].detail


def test_an_older_checkpoint_is_asked_for(effective, out):  # noqa: F811
    checks = judge(effective, resume_from_checkpoint=str(out / "checkpoint-4"))
    assert checks[0].status == "warn" and "checkpoint-8 after it" in checks[0].detail


def test_a_stage_that_cannot_resume(effective, out):  # noqa: F811
    (check,) = judge(effective, stage="rm", dataset="pairs")
    assert check.value == "new" and "cannot resume" in check.detail
    (check,) = judge(effective, stage="rm", dataset="pairs", finetuning_type="lora")
    assert (check.status, check.value) == ("fail", "refused") and "adapter_name_or_path" in check.fix


# ---- broken, or only warm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("trainer_state.json", None, "trainer_state.json"),
        ("trainer_state.json", b"", "empty"),
        ("model.safetensors", b"half", "model.safetensors"),
    ],
)
def test_the_newest_is_broken(effective, out, name, content, why):  # noqa: F811
    file = out / "checkpoint-8" / name
    file.unlink() if content is None else file.write_bytes(content)
    (check,) = judge(effective)
    assert (check.status, check.want) == ("fail", "checkpoint-4") and why in check.detail
    assert check.fix == f"resume_from_checkpoint: {out / 'checkpoint-4'}"


def test_none_is_whole(effective, out):  # noqa: F811
    for name in ("checkpoint-4", "checkpoint-8"):
        (out / name / "trainer_state.json").unlink()
    (check,) = judge(effective)
    assert check.status == "fail" and check.want is None and "no other checkpoint" in check.detail


@pytest.mark.parametrize("name", ["optimizer", "scheduler"])
def test_a_warm_start(effective, out, name):  # noqa: F811
    assert named(judge(effective), "resume_state").status == "pass"
    (out / "checkpoint-8" / f"{name}.pt").unlink()
    settle(out)
    check = named(judge(effective), "resume_state")
    assert check.status == "fail" and "warm start" in check.detail and check.value == [name]


def test_shards_of_deepspeed_are_no_broken_checkpoint(effective, out):  # noqa: F811
    checkpoint = out / "checkpoint-8"
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (checkpoint / name).unlink()
    shards = checkpoint / "global_step8"
    shards.mkdir()
    (checkpoint / "latest").write_text("global_step8")
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        torch.save({"step": torch.ones(1)}, shards / name)
    settle(out)
    checks = judge(effective)
    assert (checks[0].value, named(checks, "resume_state").status) == ("checkpoint-8", "pass")
    shutil.rmtree(shards)
    (checkpoint / "latest").unlink()
    settle(out)
    assert judge(effective)[0].status == "fail"


@pytest.mark.parametrize(("file", "check"), [("optimizer.pt", "resume_state"), ("rng_state.pth", "resume_rng")])
def test_an_unreadable_state(effective, out, file, check):  # noqa: F811
    path = out / "checkpoint-8" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = named(judge(effective), check)
    assert found.status == "fail" and f"{file} cannot be read" in found.detail


def test_the_rng_state(effective, out, monkeypatch):  # noqa: F811
    assert named(judge(effective), "resume_rng").status == "pass"
    file = out / "checkpoint-8" / "rng_state.pth"
    file.rename(file.with_name("rng_state_0.pth"))
    shutil.copy(file.with_name("rng_state_0.pth"), file.with_name("rng_state_1.pth"))
    settle(out)
    check = named(judge(effective), "resume_rng")
    assert check.status == "warn" and "not bit-exact" in check.detail and "2 processes" in check.detail
    monkeypatch.setenv("FORCE_TORCHRUN", "1")
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    assert named(judge(effective), "resume_rng").status == "pass"
    for rank in (0, 1):
        (out / "checkpoint-8" / f"rng_state_{rank}.pth").unlink()
    settle(out)
    assert "no RNG state" in named(judge(effective), "resume_rng").detail


def test_no_pickle_is_run(effective, out):  # noqa: F811
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(out / "exploded"),))

    torch.save({"base_lrs": Bomb()}, out / "checkpoint-8" / "scheduler.pt")
    assert named(judge(effective), "resume_state").status == "fail"
    assert not (out / "exploded").exists()


# ---- what has changed -----------------------------------------------------------------------------------------------


def test_the_same_config_goes_on(effective, out, model, data):  # noqa: F811
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
def test_a_changed_key(effective, out, keys, name, status, words):  # noqa: F811
    checks = judge(effective, **({"max_steps": 8} | keys))
    check = named(checks, name)
    assert check.status == status and words in check.detail
    assert {one.name for one in checks if one.name.startswith("resume_") and one.status != "pass"} - {
        "resume_left"
    } == {name}


def test_keys_of_another_method_do_not_count(effective, out):  # noqa: F811
    checks = judge(effective, max_steps=8, lora_rank=64, lora_alpha=7, lora_dropout=0.5)
    assert named(checks, "resume_keys").status == "pass"


def test_a_constant_rate_may_go_on_longer(effective, out):  # noqa: F811
    record = json.loads((out / "obs" / "run.json").read_text())
    record["config"]["resolved"]["training_args"]["lr_scheduler_type"] = "constant"
    (out / "obs" / "run.json").write_text(json.dumps(record))
    checks = judge(effective, max_steps=20, lr_scheduler_type="constant")
    assert named(checks, "resume_keys").status == "pass"


def test_without_a_record(effective, out):  # noqa: F811
    shutil.rmtree(out / "obs")
    checks = judge(effective, learning_rate=1e-5, max_steps=9, per_device_train_batch_size=1)
    assert statuses(checks)["resume_keys"] == "warn" and "no record" in named(checks, "resume_keys").detail
    assert "learning_rate 0.001 -> 1e-05" in named(checks, "resume_ignored").detail
    assert "steps 8 -> 9" in named(checks, "resume_schedule").detail
    assert "per_device_train_batch_size 2 -> 1" in named(checks, "resume_rows").detail
    assert set(statuses(judge(effective, max_steps=8))) & {"resume_ignored", "resume_schedule", "resume_rows"} == set()


def test_another_method_without_a_record(effective, out):  # noqa: F811
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


def test_what_is_left_of_epochs(effective, out):  # noqa: F811
    """48 rows in batches of 2: 24 steps an epoch; 8 of them were made."""
    for epochs, wanted, status in ((2.0, 48, "pass"), (0.5, 12, "pass"), (0.3, 8, "fail")):
        checks = judge(effective, max_steps=None, num_train_epochs=epochs)
        assert (named(checks, "resume_left").status, named(checks, "resume_left").want) == (status, wanted)
        assert ("resume_schedule" in statuses(checks)) == (wanted != 8)  # the first part was to end at 8
    checks = judge(effective, max_steps=None, num_train_epochs=2.0, gradient_accumulation_steps=2)
    assert named(checks, "resume_left").status == "warn"


def test_packed_rows_are_counted_by_the_checkpoint(effective, out):  # noqa: F811
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


# ---- the saved template ---------------------------------------------------------------------------------------------


def test_the_saved_template(effective, out, model, tmp_path):  # noqa: F811
    base = tmp_path / "base"
    shutil.copytree(model, base)
    keys = LATER | {"model_name_or_path": str(base)}

    def check():
        with effective(**keys) as run:
            return check_saved_template(run)[0]

    assert check().status == "pass"  # the base model has none
    template = (out / "checkpoint-8" / "chat_template.jinja").read_text()
    (base / "chat_template.jinja").write_text(template)
    assert check().status == "pass" and "checkpoint-4 and 1 more" in check().detail
    (out / "checkpoint-8" / "chat_template.jinja").write_text(template + " ")
    assert check().status == "warn" and "checkpoint-8" in check().detail
    (out / "checkpoint-8" / "chat_template.jinja").unlink()
    assert check().status == "fail" and "has no chat template" in check().detail
    (out / "checkpoint-8" / "chat_template.jinja").write_text(template)
    config = json.loads((out / "checkpoint-8" / "tokenizer_config.json").read_text())
    (out / "checkpoint-8" / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "another"}))
    assert check().status == "fail" and "tokenizer_config.json" in check().detail
    with effective(**LATER | {"model_name_or_path": "nobody/nothing"}) as run:
        assert check_saved_template(run)[0].status == "skipped"
    shutil.rmtree(out)
    assert check().status == "skipped"


def test_the_optimizer_knows_the_rate_better_than_the_record(effective, out):  # noqa: F811
    """The record of a resume that asked for 1e-5 in vain."""
    record = json.loads((out / "obs" / "run.json").read_text())
    record["config"]["resolved"]["training_args"]["learning_rate"] = 1e-5
    (out / "obs" / "run.json").write_text(json.dumps(record))
    assert "resume_ignored" not in statuses(judge(effective, max_steps=8))
    assert "0.001 -> 1e-05" in named(judge(effective, max_steps=8, learning_rate=1e-5), "resume_ignored").detail
