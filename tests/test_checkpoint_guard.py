"""`checkpoint_guard` in real runs: each save is proven, a broken or late one is told, and nothing else changes."""

import hashlib
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from llamafactory_obs import load_record
from llamafactory_obs.callbacks import checkpoint_guard
from llamafactory_obs.callbacks.checkpoint_guard import CheckpointGuard
from llamafactory_obs.callbacks.verify_save import Saved, identity
from llamafactory_obs.identity.files import hash_files
from llamafactory_obs.record.checkpoints import read_checkpoints

LORA = {"finetuning_type": "lora", "save_steps": 2}


def events(out, kind=None):
    rows = load_record(out).events
    assert not [row for row in rows if row["kind"] == "callback_off"], rows
    return [row for row in rows if row["name"] == "checkpoint_guard" and kind in (None, row["kind"])]


def alerts(out) -> list[tuple]:
    return [(row["title"], row["step"], row["level"]) for row in events(out, "alert")]


class AfterSave(TrainerCallback):
    """Does something to a checkpoint between its save and us; `Recorder` is last in the list, so we come later."""

    def __init__(self, step, do):
        self.step, self.do = step, do

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            from pathlib import Path

            self.do(Path(args.output_dir) / f"checkpoint-{self.step}")


def test_each_save_has_its_row_and_its_hash(train):
    out = train(callbacks=["checkpoint_guard"], max_steps=4, **LORA)
    rows = read_checkpoints(out)
    assert [row["step"] for row in rows] == [2, 4] and all(row["good"] for row in rows)
    assert {row["verdict"] for row in rows} == {"resumes exactly"}
    for row in rows:
        folder = out / f"checkpoint-{row['step']}"
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        assert (row["bytes"], row["files"]) == (sum(sizes), len(sizes)) and row["path"] == str(folder)
        assert 0 < row["save_s"] < 60
    last = rows[-1]
    files = sorted(file.name for file in (out / "checkpoint-4").iterdir())
    whole = hashlib.sha256()
    for name in files:
        whole.update(f"{name}\0{hashlib.sha256((out / 'checkpoint-4' / name).read_bytes()).hexdigest()}\n".encode())
    assert last["check"] == "full" and last["sha256"] == whole.hexdigest()
    assert last["sha256"] == hash_files(out / "checkpoint-4", files)["sha256"], "the verb says the same"
    assert alerts(out) == [] and [row["step"] for row in events(out, "verified")][-1] == 4
    assert load_record(out).checkpoints == rows


def test_bit_equal_with_and_without_it(train):
    more = {"val_size": 0.2, "eval_strategy": "steps", "eval_steps": 2, "lora_dropout": 0.1, **LORA}
    without = train(max_steps=6, **more)
    with_it = train(callbacks=[{"checkpoint_guard": {"top_k": {"k": 1}}}], max_steps=6, **more)
    a, b = (load_file(out / "adapter_model.safetensors") for out in (without, with_it))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    a, b = (torch.load(out / "checkpoint-6" / "optimizer.pt", weights_only=True) for out in (without, with_it))
    assert all(torch.equal(x["exp_avg"], b["state"][k]["exp_avg"]) for k, x in a["state"].items())
    assert (without / "checkpoint-2").is_dir() and not (with_it / "checkpoint-2").exists()


def test_a_broken_save_is_told_at_once_and_its_end_too(train):
    def cut(folder):
        file = folder / "adapter_model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])

    out = train(callbacks=["checkpoint_guard"], max_steps=6, extra_callbacks=[AfterSave(4, cut)], **LORA)
    assert alerts(out) == [("checkpoint_broken", 4, "error"), ("checkpoint_broken_over", 6, "info")]
    told = events(out, "alert")[0]["text"]
    assert "adapter_model.safetensors" in told and "The newest good one is checkpoint-2" in told
    assert [row["good"] for row in read_checkpoints(out)] == [True, False, True]


def test_what_only_reading_back_finds(train):
    def poison(folder):
        file = folder / "adapter_model.safetensors"
        tensors = load_file(file)
        next(iter(tensors.values())).view(-1)[0] = float("nan")
        save_file(tensors, file, metadata={"format": "pt"})

    out = train(callbacks=["checkpoint_guard"], max_steps=2, extra_callbacks=[AfterSave(2, poison)], **LORA)
    assert alerts(out) == [("checkpoint_broken", 2, "error")] and "NaN" in events(out, "alert")[0]["text"]
    blind = [{"checkpoint_guard": {"read_back": False}}]
    out = train(callbacks=blind, max_steps=2, extra_callbacks=[AfterSave(2, poison)], **LORA)
    assert alerts(out) == [] and read_checkpoints(out)[0]["check"] == "quick"


def test_a_save_without_optimizer_is_broken_unless_it_was_asked_for(train):
    out = train(callbacks=["checkpoint_guard"], max_steps=2, save_only_model=True, **LORA)
    assert alerts(out) == [] and read_checkpoints(out)[0]["good"]
    lose = AfterSave(2, lambda folder: (folder / "optimizer.pt").unlink())
    out = train(callbacks=["checkpoint_guard"], max_steps=2, extra_callbacks=[lose], **LORA)
    assert [one[0] for one in alerts(out)] == ["checkpoint_broken"]
    assert "optimizer.pt is missing" in events(out, "alert")[0]["text"]


class NoSave(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_save &= state.global_step != 2


def test_a_save_that_does_not_come_is_told(train):
    out = train(callbacks=["checkpoint_guard"], max_steps=4, extra_callbacks=[NoSave()], **LORA)
    assert alerts(out) == [("checkpoint_late", 3, "warn"), ("checkpoint_late_over", 4, "info")]
    assert "checkpoint-2 was due" in events(out, "alert")[0]["text"]


def test_a_disk_that_does_not_hold_the_next_one(train, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(checkpoint_guard.shutil, "disk_usage", lambda path: usage._replace(free=200_000))
    out = train(callbacks=["checkpoint_guard"], max_steps=4, **LORA)
    assert "checkpoint_will_not_fit" in [one[0] for one in alerts(out)]
    out = train(callbacks=["checkpoint_guard", "system"], max_steps=4, **LORA)
    assert alerts(out) == [], "`system` is there and says it by itself"


def test_one_that_is_rotated_away_while_it_is_read_is_no_alert(train, monkeypatch):
    def half_gone(folder, step, stop, wanted):
        before = identity(folder)
        shutil.rmtree(folder)
        return Saved(folder, step, "broken", "optimizer.pt is missing", identity=before)

    monkeypatch.setattr(checkpoint_guard, "check_full", half_gone)
    out = train(callbacks=["checkpoint_guard"], max_steps=2, **LORA)
    assert alerts(out) == [] and not (out / "checkpoint-2").exists()


def test_what_fails_beside_the_training_ends_nothing_else(train, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("planted")

    monkeypatch.setattr(checkpoint_guard, "check_full", broken)
    out = train(callbacks=["checkpoint_guard"], max_steps=4, **LORA)
    off = [row for row in load_record(out).events if row["kind"] == "callback_off"]
    assert len(off) == 1 and "planted" in off[0]["text"] and "reading back" in off[0]["title"]
    assert [row["step"] for row in read_checkpoints(out)] == [2, 4]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"signals": "SIGFOO"}, "SIGFOO"),
        ({"signals": ["SIGKILL"]}, "cannot be caught"),
        ({"signals": ""}, "at least one"),
        ({"on_notice": "die"}, "on_notice"),
        ({"grace_s": -1}, "negative"),
        ({"top_k": {"k": 0}}, "at least 1"),
        ({"top_k": {"n": 3}}, "'n'"),
        ({"top_k": {"mode": "low"}}, "min or max"),
        ({"top_k": {"k": True}}, "whole number"),
        ({"top_k": 3}, "top_k"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        CheckpointGuard(**options)
