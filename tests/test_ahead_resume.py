"""What becomes of `output_dir`, over checkpoints that LlamaFactory made."""

import json
import os
import shutil

import pytest
from ahead_config import effective as effective
from ahead_config import named, statuses
from ahead_resume_run import LATER, judge, settle
from ahead_resume_run import out as out
from ahead_resume_run import trained as trained

from llamafactory_obs.preflight.ahead.template import check_saved_template

torch = pytest.importorskip("torch")


# ---- the four combinations, and their kind --------------------------------------------------------------------------


def test_a_new_folder(effective, tmp_path):
    for overwrite in (True, None):
        (check,) = judge(effective, overwrite_output_dir=overwrite)
        assert (check.status, check.value) == ("pass", "new") and "starts new" in check.detail
    (tmp_path / "out").mkdir()
    (check,) = judge(effective)
    assert check.status == "pass" and "no checkpoint in output_dir" in check.detail


def test_names_that_are_no_checkpoint(effective, out):
    for name in ("checkpoint-best", "tmp-checkpoint-10", "checkpoint-", "checkpoint-10.bak"):
        shutil.copytree(out / "checkpoint-8", out / name)
    settle(out)
    (out / "checkpoint-12").write_text("a file")
    assert judge(effective)[0].value == "checkpoint-8"
    asked = judge(effective, resume_from_checkpoint=str(out / "checkpoint-best"))
    assert (asked[0].status, asked[0].value) == ("pass", "checkpoint-best")


def test_a_part_that_cannot_be_judged_hides_no_other(effective, out, monkeypatch):
    def broken(run, checkpoint):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("llamafactory_obs.preflight.ahead.output_dir.check_changes", broken)
    found = statuses(judge(effective))
    assert (found["output_dir"], found["resume_state"], found["resume_keys"]) == ("warn", "pass", "error")


def test_a_silent_resume(effective, out):
    checks = judge(effective, max_steps=8, save_steps=4)
    assert statuses(checks)["output_dir"] == "warn" and "will resume from checkpoint-8" in checks[0].detail
    asked = judge(effective, resume_from_checkpoint=str(out / "checkpoint-8"), max_steps=12)
    assert (asked[0].status, asked[0].value) == ("pass", "checkpoint-8")
    assert judge(effective, resume_from_checkpoint=True)[0].value == "checkpoint-8"


def test_overwriting(effective, out):
    (check,) = judge(effective, overwrite_output_dir=True)
    assert check.status == "warn" and "trainer_log.jsonl of the run before will be deleted" in check.detail
    assert "2 checkpoints (checkpoint-4 to checkpoint-8)" in check.detail
    both = judge(effective, overwrite_output_dir=True, resume_from_checkpoint=str(out / "checkpoint-8"))
    assert both[0].status == "warn" and "deletes trainer_log.jsonl" in both[0].detail
    (off,) = judge(effective, resume_from_checkpoint=False)
    assert off.value == "new" and off.status == "warn"


def test_a_folder_with_a_model_and_no_checkpoint(effective, out):
    for name in ("checkpoint-4", "checkpoint-8"):
        shutil.rmtree(out / name)
    (check,) = judge(effective)
    assert (check.status, check.value) == ("fail", "refused") and "model.safetensors" in check.detail
    from llamafactory.train.tuner import run_exp  # and so it does

    with pytest.raises(ValueError, match="not empty"), effective(**LATER) as run:
        run_exp(dict(run.config.given))


def test_a_path_outside_and_one_that_is_not_there(effective, out, tmp_path):
    shutil.copytree(out / "checkpoint-8", tmp_path / "other" / "checkpoint-8")
    shutil.rmtree(out)
    checks = judge(effective, resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-8"))
    assert checks[0].status == "warn" and "outside output_dir" in checks[0].detail
    checks = judge(effective, resume_from_checkpoint=str(tmp_path / "nowhere"))
    assert checks[0].status == "fail" and "no such folder" in checks[0].detail


def test_an_older_checkpoint_is_asked_for(effective, out):
    checks = judge(effective, resume_from_checkpoint=str(out / "checkpoint-4"))
    assert checks[0].status == "warn" and "checkpoint-8 after it" in checks[0].detail


def test_a_stage_that_cannot_resume(effective, out):
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
def test_the_newest_is_broken(effective, out, name, content, why):
    file = out / "checkpoint-8" / name
    file.unlink() if content is None else file.write_bytes(content)
    (check,) = judge(effective)
    assert (check.status, check.want) == ("fail", "checkpoint-4") and why in check.detail
    assert check.fix == f"resume_from_checkpoint: {out / 'checkpoint-4'}"


def test_none_is_whole(effective, out):
    for name in ("checkpoint-4", "checkpoint-8"):
        (out / name / "trainer_state.json").unlink()
    (check,) = judge(effective)
    assert check.status == "fail" and check.want is None and "no other checkpoint" in check.detail


@pytest.mark.parametrize("name", ["optimizer", "scheduler"])
def test_a_warm_start(effective, out, name):
    assert named(judge(effective), "resume_state").status == "pass"
    (out / "checkpoint-8" / f"{name}.pt").unlink()
    settle(out)
    check = named(judge(effective), "resume_state")
    assert check.status == "fail" and "warm start" in check.detail and check.value == [name]


def test_shards_of_deepspeed_are_no_broken_checkpoint(effective, out):
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
def test_an_unreadable_state(effective, out, file, check):
    path = out / "checkpoint-8" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = named(judge(effective), check)
    assert found.status == "fail" and f"{file} cannot be read" in found.detail


def test_the_rng_state(effective, out, monkeypatch):
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


def test_no_pickle_is_run(effective, out):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(out / "exploded"),))

    torch.save({"base_lrs": Bomb()}, out / "checkpoint-8" / "scheduler.pt")
    assert named(judge(effective), "resume_state").status == "fail"
    assert not (out / "exploded").exists()


# ---- the saved template ---------------------------------------------------------------------------------------------


def test_the_saved_template(effective, out, model, tmp_path):
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
