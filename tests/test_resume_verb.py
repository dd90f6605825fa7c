"""`resume`: what happens as it stands, the checkpoint it chooses, what is lost, what has changed."""

import json
import os
import shutil
import time

import pytest
from resume_folder import LORA, cut, folder, killed, names, point  # noqa: F401

from llamafactory_obs.control.folder import control_folder
from llamafactory_obs.control.presence import Presence

pytest.importorskip("torch")


def listing(place):
    """Every file with its content and time; the look for a running job touches its own folder only."""
    files = sorted(one for one in place.rglob("*") if one.is_file())
    return {str(one): (one.read_bytes(), one.stat().st_mtime_ns) for one in files}


def test_it_continues_exactly_and_nothing_is_written(folder):  # noqa: F811
    before = listing(folder.out)
    plan = folder.plan()
    assert listing(folder.out) == before
    assert (plan.verdict, plan.exit_code, plan.best.name) == ("continues exactly", 0, "checkpoint-8")
    assert names(plan.stands) == ["stands.unasked"]
    assert plan.fate.restored == ["weights", "optimizer", "scheduler", "data", "rng"] and plan.fate.whole
    whats = ["data", "template", "model", "adapter", "batch", "processes", "seed", "optimizer"]
    assert plan.agreement.same == whats
    assert (plan.left.step, plan.left.steps, plan.left.total, plan.left.again) == (8, 4, 12, 1)
    assert plan.left.epochs == pytest.approx(4 * 2 / 48) and plan.left.seconds_per_step > 0
    assert plan.launch.words[1:] == [f"resume_from_checkpoint={folder.newest}"] and not plan.launch.environment


@pytest.mark.parametrize(
    ("keys", "stands", "words"),
    [
        ({"overwrite_output_dir": True}, ["overwrite", "mixed", "deletes_log"], ["overwrite_output_dir=false"]),
        ({"resume_from_checkpoint": False}, ["off", "mixed"], []),
        ({"resume_from_checkpoint": True}, ["asked_newest"], []),
        ({"resume_from_checkpoint": "/nowhere/checkpoint-3"}, ["no_such_folder"], []),
    ],
)
def test_as_it_stands_with_checkpoints(folder, keys, stands, words):  # noqa: F811
    plan = folder.plan(**keys)
    assert names(plan.stands) == [f"stands.{name}" for name in stands]
    assert plan.exit_code == 0 and plan.launch.words[2:] == words
    assert plan.launch.words[1] == f"resume_from_checkpoint={folder.newest}"


def test_overwrite_with_a_named_checkpoint_deletes_the_log(folder):  # noqa: F811
    plan = folder.plan(overwrite_output_dir=True, resume_from_checkpoint=str(folder.newest))
    assert names(plan.stands) == ["stands.asked", "stands.loses_log"] and plan.exit_code == 0


def test_as_it_stands_without_checkpoints(folder, tmp_path):  # noqa: F811
    outside = folder.plan(output_dir=str(tmp_path / "new"), resume_from_checkpoint=str(folder.newest))
    assert names(outside.stands) == ["stands.asked", "stands.outside"] and "state.outside" in names(outside.state)
    for name in ("checkpoint-4", "checkpoint-8"):
        shutil.rmtree(folder.out / name)
    for keys, reason in (({}, "empty"), ({"resume_from_checkpoint": True}, "none_there")):
        plan = folder.plan(**keys)
        assert names(plan.stands) == [f"stands.{reason}"] and plan.verdict == "nothing to resume"
    (folder.out / "adapter_config.json").write_text("{}")
    (folder.out / "adapter_model.safetensors").write_text("")
    assert names(folder.plan().stands) == ["stands.model_there"]
    shutil.rmtree(folder.out)
    plan = folder.plan()
    assert names(plan.stands) == ["stands.no_folder"] and (plan.exit_code, plan.launch) == (1, None)


@pytest.mark.parametrize("stage", ["rm", "ppo"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_stages_that_never_resume(folder, stage, method):  # noqa: F811
    reward = (
        {"reward_model": str(folder.model), "reward_model_type": method} if stage == "ppo" else {"dataset": "pairs"}
    )
    plan = folder.plan(stage=stage, finetuning_type=method, **reward)
    assert plan.verdict == "stage never resumes" and plan.launch is None and not plan.can_start
    assert names(plan.stands)[0] == ("stands.stage_ends" if method == "lora" else "stands.stage")


@pytest.mark.parametrize(
    ("file", "damage", "stands"),
    [
        ("trainer_state.json", "remove", "ends"),
        ("adapter_model.safetensors", "cut", "ends"),
        ("optimizer.pt", "cut", "ends"),
        ("rng_state.pth", "cut", "ends"),
        ("optimizer.pt", "remove", "loses"),
        ("scheduler.pt", "remove", "loses"),
        ("trainer_state.json", "other step", "wrong"),
    ],
)
def test_the_newest_is_not_good(folder, file, damage, stands):  # noqa: F811
    path = folder.newest / file
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        cut(path)
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"global_step": 6}))
    plan = folder.plan()
    assert names(plan.stands) == ["stands.unasked", f"stands.{stands}"]
    assert (plan.best.name, plan.verdict, plan.exit_code) == ("checkpoint-4", "continues exactly", 0)
    passed = point(plan.state, "state.passed")
    assert passed.values["checkpoint"] == "checkpoint-8" and file in passed.values["why"]
    assert plan.left.again == 5
    assert folder.plan(resume_from_checkpoint=str(folder.newest)).best.name == "checkpoint-4"


def test_a_missing_random_state_is_named(folder):  # noqa: F811
    (folder.newest / "rng_state.pth").unlink()
    plan = folder.plan()
    assert (plan.best.name, plan.verdict, plan.may_start) == ("checkpoint-8", "continues, changed", True)
    assert point(plan.state, "lost.rng").level == "warn" and "rng" not in plan.fate.restored


def test_only_warm_starts(folder):  # noqa: F811
    for name in ("checkpoint-4", "checkpoint-8"):
        (folder.out / name / "optimizer.pt").unlink()
    plan = folder.plan()
    assert (plan.best.name, plan.verdict, plan.may_start) == ("checkpoint-8", "warm start only", False)
    assert plan.can_start and {"lost.optimizer", "lost.scheduler"} <= set(names(plan.state))


def test_all_are_broken(folder):  # noqa: F811
    for name in ("checkpoint-4", "checkpoint-8"):
        cut(folder.out / name / "adapter_model.safetensors")
    plan = folder.plan()
    assert (plan.verdict, plan.best, plan.launch, plan.can_start) == ("nothing to resume", None, None, False)


def test_an_older_one_is_asked_for(folder):  # noqa: F811
    plan = folder.plan("4")
    assert plan.best.name == "checkpoint-4" and point(plan.state, "state.newer").values["newer"] == "checkpoint-8"
    assert plan.exit_code == 1 and plan.may_start


def test_a_checkpoint_of_another_run_is_not_taken(folder):  # noqa: F811
    """All of it is whole and of its step; only its losses are not those of the record."""
    file = folder.newest / "trainer_state.json"
    state = json.loads(file.read_text())
    state["log_history"] = [row | {"loss": 1.0} for row in state["log_history"]]
    file.write_text(json.dumps(state))
    plan = folder.plan()
    assert names(plan.stands) == ["stands.unasked", "stands.older"] and plan.best.name == "checkpoint-4"
    assert names(plan.state) == ["state.passed_older", "state.leftover"]
    assert point(folder.plan("8").state, "state.older").level == "grave"


def test_rotation_goes_by_the_times_of_the_folders(folder):  # noqa: F811
    """transformers' own rotation is the judge: which of a torn newer one and a new one does it delete?"""
    from transformers.trainer_utils import rotate_checkpoints

    (folder.newest / "trainer_state.json").unlink()
    now = time.time()
    for limit, ahead, name in (
        (1, 0, "state.leftover_limit"),
        (2, 0, "state.leftover_limit"),
        (None, 0, "state.leftover"),
        (1, 3600, "state.rotation"),
        (2, 3600, "state.leftover_limit"),
    ):
        os.utime(folder.newest, (now + ahead - 60, now + ahead - 60))
        plan = folder.plan(save_total_limit=limit)
        assert name in names(plan.state) and plan.may_start == (name != "state.rotation")
        aside = folder.out / "set_aside"
        assert point(plan.state, name).cure("en") == f"mkdir -p {aside} && mv {folder.newest} {aside}/"
        copy = folder.place / f"{limit}-{ahead}"
        shutil.copytree(folder.out, copy)  # keeps the times
        (copy / "checkpoint-6").mkdir()
        rotate_checkpoints(str(copy), limit, use_mtime=True)
        assert (copy / "checkpoint-6").is_dir() == (name != "state.rotation")


def test_what_rotation_counts_beside_the_checkpoints(folder):  # noqa: F811
    from transformers.trainer_utils import rotate_checkpoints

    kept = folder.out / "checkpoint-4.bak"
    shutil.copytree(folder.out / "checkpoint-4", kept)
    assert "state.counted" not in names(folder.plan().state)
    plan = folder.plan(save_total_limit=1)
    assert point(plan.state, "state.counted").values["names"] == kept.name and plan.exit_code == 1
    (folder.out / "checkpoint-10").mkdir()
    rotate_checkpoints(str(folder.out), 1)
    assert not kept.exists()


def test_a_newer_good_one_is_deleted_by_the_limit(folder):  # noqa: F811
    found = point(folder.plan("4", save_total_limit=1).state, "state.newer_deleted")
    assert found.level == "warn" and "checkpoint-8" in found.say("en")
    assert "state.newer_deleted" not in names(folder.plan("4").state)


def test_a_training_that_is_at_work(folder):  # noqa: F811
    place = control_folder(folder.out)
    place.mkdir(parents=True, exist_ok=True)
    read, write = os.pipe()
    done, end = os.pipe()
    pid = os.fork()
    if not pid:  # the job is another process
        Presence(place, {}).take()
        os.write(write, b"x")
        os.read(done, 1)
        os._exit(0)
    try:
        os.read(read, 1)
        plan = folder.plan()
        assert "state.running" in names(plan.state) and not plan.may_start and not plan.can_start
    finally:
        os.write(end, b"x")
        os.waitpid(pid, 0)
    assert "state.running" not in names(folder.plan().state)


# ---- what has changed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "name", "level", "said"),
    [
        ({"learning_rate": 1e-5}, "changed.ignored", "grave", "learning_rate 0.001 -> 1e-05 is IGNORED"),
        ({"weight_decay": 0.1}, "changed.ignored", "grave", "weight_decay 0 -> 0.1"),
        ({"adam_beta2": 0.9}, "changed.ignored", "grave", "adam_beta2 0.999 -> 0.9"),
        ({"max_steps": 20}, "changed.schedule", "warn", "steps 12 -> 20"),
        ({"lr_scheduler_type": "linear"}, "changed.schedule", "warn", "cosine -> linear"),
        ({"warmup_steps": 6}, "changed.schedule", "warn", "warmup_steps 2 -> 6"),
        ({"per_device_train_batch_size": 4}, "changed.larger_batch", "grave", "2 -> 4); the"),
        ({"per_device_train_batch_size": 1}, "changed.smaller_batch", "grave", "8 rows are seen again"),
        ({"seed": 7}, "changed.order", "grave", "seed 42 -> 7"),
        ({"cutoff_len": 64}, "changed.data", "grave", "cutoff_len 128 -> 64"),
        ({"template": "qwen"}, "changed.data", "grave", "template qwen3_nothink -> qwen"),
        ({"lora_alpha": 64}, "changed.scale", "grave", "lora_alpha 8 -> 64"),
        ({"lora_rank": 8, "lora_alpha": 8}, "changed.model", "grave", "lora_rank 4 -> 8"),
        ({"save_steps": 2}, "changed.cadence", "warn", "save_steps 4 -> 2 is IGNORED"),
        ({"save_steps": 0.5}, "changed.cadence", "warn", "save_steps 4 -> 6 is IGNORED"),
        ({"logging_steps": 5}, "changed.cadence", "warn", "logging_steps 1 -> 5"),
        (
            {"eval_strategy": "steps", "eval_steps": 3, "val_size": 0.0, "eval_dataset": "rows"},
            "changed.cadence",
            "warn",
            "eval_steps 500 -> 3",
        ),
        ({"max_grad_norm": 0.3}, "changed.effect", "info", "max_grad_norm 1 -> 0.3"),
        ({"ignore_data_skip": True}, "changed.data_skip", "grave", "begins anew"),
    ],
)
def test_a_changed_key(folder, keys, name, level, said):  # noqa: F811
    plan = folder.plan(**keys)
    assert names(plan.changes) == [name]
    found = point(plan.changes, name)
    assert found.level == level and said.replace("); the", "): the") in found.say("en")
    assert plan.exit_code == (level != "info") and plan.may_start == (level != "grave")
    assert (plan.verdict == "does not fit") == (name == "changed.model")


def test_the_ignored_rate_and_what_to_do(folder):  # noqa: F811
    found = point(folder.plan(learning_rate=1e-5).changes, "changed.ignored")
    assert found.cure("en") == f"llamafactory-obs control {folder.out} --lr-scale 0.01 --queue"


def test_the_same_total_batch_is_no_change_of_the_rows(folder):  # noqa: F811
    plan = folder.plan(per_device_train_batch_size=1, gradient_accumulation_steps=2)
    assert names(plan.changes) == ["changed.same_batch"] and plan.exit_code == 0


def test_keys_that_do_not_matter(folder):  # noqa: F811
    plan = folder.plan(save_total_limit=5, run_name="x", per_device_eval_batch_size=3, save_strategy="no", save_steps=2)
    assert plan.changes == [] and plan.exit_code == 0


def test_nothing_is_left(folder):  # noqa: F811
    plan = folder.plan(max_steps=8)
    assert (plan.verdict, plan.can_start) == ("nothing left to train", False)
    assert "stands.nothing_left" in names(plan.stands) and names(plan.changes) == []


def test_epochs_are_counted_by_the_rows_of_the_record(folder):  # noqa: F811
    """48 rows: 24 steps an epoch with 2 rows a step, 12 with 4."""
    assert folder.plan(max_steps=None, num_train_epochs=2.0).left.total == 48
    plan = folder.plan(max_steps=None, num_train_epochs=2.0, per_device_train_batch_size=4)
    assert plan.left.total == 24 and plan.left.epochs == pytest.approx(16 / 12)


def test_other_data_under_the_same_name(folder, tmp_path):  # noqa: F811
    shutil.copytree(folder.data, tmp_path / "data")
    assert folder.plan(dataset_dir=str(tmp_path / "data")).exit_code == 0  # moved, and the same
    rows = json.loads((tmp_path / "data" / "rows.json").read_text())
    rows[3]["output"] += " more"
    (tmp_path / "data" / "rows.json").write_text(json.dumps(rows))
    plan = folder.plan(dataset_dir=str(tmp_path / "data"))
    assert names(plan.agreement.points) == ["agree.data"] and "data" not in plan.agreement.same and not plan.may_start


def test_another_base_model_in_the_same_place(folder, tmp_path):  # noqa: F811
    base = tmp_path / folder.model.name
    shutil.copytree(folder.model, base)
    assert folder.plan(model_name_or_path=str(base)).exit_code == 0
    raw = bytearray((base / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (base / "model.safetensors").write_bytes(raw)
    plan = folder.plan(model_name_or_path=str(base))
    assert names(plan.agreement.points) == ["agree.model"] and not plan.may_start


def test_without_a_record_it_is_not_known(folder):  # noqa: F811
    shutil.rmtree(folder.out / "obs")
    plan = folder.plan()
    assert names(plan.points) == ["agree.no_record", "left.again_one"] and plan.exit_code == 1 and plan.may_start
    plan = folder.plan(learning_rate=1e-5, weight_decay=0.1, per_device_train_batch_size=4, seed=3)
    assert names(plan.changes) == ["changed.ignored", "changed.ignored", "changed.larger_batch", "changed.order"]
    assert LORA["lora_rank"] == 4 and names(folder.plan(lora_rank=8, lora_alpha=8).changes) == ["changed.model"]
