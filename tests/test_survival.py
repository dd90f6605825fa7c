"""Observing never changes the run and never ends it (DESIGN section 5, rules 1 and 2; INJ-5, LOG-6, F12)."""

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from llamafactory_obs import LabelMask, load_record
from llamafactory_obs.callbacks.console import Console
from llamafactory_obs.record import writer as writer_module

ALL = ["grad_norm_spike", {"layer_norms": {"every": 1, "weights_every": 1}}, "label_mask", {"vram": {"limit_gib": 24}}]
ALL += ["throughput"]


def logged(out):
    rows = json.loads((out / "trainer_state.json").read_text())["log_history"]
    return [{k: v for k, v in row.items() if "runtime" not in k and "per_second" not in k} for row in rows]


@pytest.mark.parametrize(
    "kind",
    [
        {"finetuning_type": "full", "max_grad_norm": 0.05},
        {"finetuning_type": "lora", "lora_dropout": 0.1, "gradient_accumulation_steps": 2},
        {"finetuning_type": "full", "max_grad_norm": 0, "packing": True},
        {"finetuning_type": "full", "val_size": 0.2, "eval_steps": 2, "eval_strategy": "steps"},
    ],
)
def test_bit_equal_with_and_without_us(train, kind):
    without, with_us = train(**kind), train(callbacks=ALL, **kind)
    assert logged(without) == logged(with_us)
    assert len(load_record(with_us).steps["step"]) == 6
    name = "adapter_model.safetensors" if kind["finetuning_type"] == "lora" else "model.safetensors"
    a, b = load_file(without / name), load_file(with_us / name)
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


class Broken(TrainerCallback):
    """Somebody else's callback, named by dotted path, whose sink dies at step 3."""

    calls = 0

    def on_log(self, args, state, control, **kwargs):
        Broken.calls += 1
        if state.global_step == 3:
            raise ConnectionError("tracker is down")


def test_a_dead_sink_is_switched_off_and_named_once(train, capfd):
    Broken.calls = 0
    out = train(callbacks=["test_survival.Broken", "grad_norm_spike"])
    record = load_record(out)
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6]
    off = [e for e in record.events if e["kind"] == "callback_off"]
    assert len(off) == 1 and off[0]["name"] == "test_survival.Broken" and "tracker is down" in off[0]["text"]
    assert Broken.calls == 3
    assert capfd.readouterr().out.count("tracker is down") == 1


class DeadOnArrival(TrainerCallback):
    """A tracker that connects when training begins, and cannot."""

    def __init__(self, event):
        setattr(self, event, self.connect)

    def connect(self, *args, **kwargs):
        raise ConnectionError("no route to tracker")


@dataclass(frozen=True)
class Frozen(TrainerCallback):
    """Refuses every attribute."""

    word: str = "x"


@pytest.mark.parametrize("event", ["on_init_end", "on_train_begin", "on_train_end"])
def test_a_sink_that_never_connects_does_not_keep_the_run_from_starting(train, event):
    named = [{"test_survival.DeadOnArrival": {"event": event}}, "test_survival.Frozen", "vram"]
    record = load_record(train(callbacks=named, max_steps=2))
    assert record.steps["step"] == [1, 2]
    assert [e["name"] for e in record.events if e["kind"] == "callback_off"] == ["test_survival.DeadOnArrival"]


def test_a_host_tracker_that_never_connects_does_not_keep_the_run_from_starting(train, monkeypatch):
    from transformers.integrations import TensorBoardCallback

    def dead(*args, **kwargs):
        raise ConnectionError("no route to tracker")

    monkeypatch.setattr(TensorBoardCallback, "on_train_begin", dead)
    record = load_record(train(report_to="tensorboard", callbacks=["vram"], max_steps=2))
    assert record.steps["step"] == [1, 2]
    assert [e["name"] for e in record.events if e["kind"] == "callback_off"] == ["TensorBoardCallback"]


def test_a_dead_tracker_of_the_host_does_not_end_the_run(train, monkeypatch):
    from transformers.integrations import TensorBoardCallback

    def dead(*args, **kwargs):
        raise OSError("no space for event files")

    monkeypatch.setattr(TensorBoardCallback, "on_log", dead)
    with pytest.raises(OSError, match="no space"):
        train(report_to="tensorboard")  # without us it does
    record = load_record(train(report_to="tensorboard", callbacks=["vram"]))
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6]
    assert [e["name"] for e in record.events if e["kind"] == "callback_off"] == ["TensorBoardCallback"]


@pytest.mark.parametrize("hook", ["begin", "batch", "derive", "row", "logged", "summary", "end"])
def test_an_exception_in_our_own_callback_switches_only_it_off(train, monkeypatch, hook):
    def fail(self, *args):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(LabelMask, hook, fail)
    record = load_record(train(callbacks=ALL, max_steps=3))
    assert record.steps["step"] == [1, 2, 3]
    assert None not in record.steps["train/grad_norm"]
    assert [e["name"] for e in record.events if e["kind"] == "callback_off"] == ["label_mask"]


def test_a_full_disk_loses_rows_and_nothing_else(train, monkeypatch, capfd):
    real, full = os.write, []

    def write(handle, data):
        if b'"step":3' in data[:12] or b'"step":4' in data[:12]:
            full.append(data)
            real(handle, data[: len(data) // 2])  # the disk takes half a row
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(writer_module.os, "write", write)
    out = train(callbacks=ALL)
    record = load_record(out)
    assert full and record.torn == 0, "no half row stays behind"
    assert record.steps["step"] == [1, 2, 5, 6]
    gap = [e for e in record.events if e["kind"] == "record_gap"]
    assert gap and f"{len(full)} rows" in gap[-1]["text"]
    assert capfd.readouterr().out.count("steps.jsonl of the run record cannot be written") == 1


def test_an_unwritable_folder_is_said_once(train, tmp_path, capfd):
    blocked = tmp_path / "out"
    blocked.mkdir()
    (blocked / "obs").write_text("a file stands where the record's folder should be")
    train(output_dir=blocked, callbacks=ALL)
    assert (blocked / "model.safetensors").is_file()
    assert capfd.readouterr().out.count("of the run record cannot be written") == 1


class Remove(TrainerCallback):
    """Removes the whole record, or one file of it, in the middle of the run."""

    def __init__(self, what):
        self.what = what

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 3:
            target = Path(args.output_dir) / "obs" / self.what
            shutil.rmtree(target) if target.is_dir() else target.unlink()


@pytest.mark.parametrize("what", ["", "steps.jsonl"])
def test_a_record_removed_while_training_is_begun_anew_and_said_so(train, what, capfd):
    record = load_record(train(callbacks=ALL, extra_callbacks=[Remove(what)]))
    assert record.steps["step"] == [4, 5, 6] and record.run["schema_version"] == 1
    assert [e["kind"] for e in record.events].count("record_gap") >= 1
    assert "was removed while training" in capfd.readouterr().out


@pytest.mark.parametrize("blocked", ["run.json", "events.jsonl"])
def test_one_blocked_file_costs_only_itself(train, tmp_path, blocked):
    (tmp_path / "out" / "obs" / blocked).mkdir(parents=True)
    record = load_record(train(output_dir=tmp_path / "out", callbacks=ALL, max_steps=3))
    assert record.steps["step"] == [1, 2, 3]


def test_an_archive_that_cannot_be_made_mixes_no_runs(train, tmp_path):
    out = tmp_path / "out"
    train(output_dir=out, callbacks=ALL, max_steps=3)
    (out / "obs" / "archive").write_text("in the way")
    train(output_dir=out, callbacks=ALL, max_steps=2)
    assert load_record(out).steps["segment"] == [1, 1, 0], "told apart, as after a resume"


def test_without_a_terminal_training_goes_on(train, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", None)
        record = load_record(train(callbacks=["vram", "test_survival.Broken"], max_steps=3))
    assert record.steps["step"] == [1, 2, 3]
    assert [e["kind"] for e in record.events].count("callback_off") == 1


def test_a_terminal_that_goes_away_is_no_error(monkeypatch):
    with open(os.devnull, "w") as gone:
        pass
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", gone)
        Console(enabled=True).line("nobody reads this", "error")


class Leaky(TrainerCallback):
    """Says its key in an exception."""

    def __init__(self, word):
        self.word = word

    def on_step_end(self, args, state, control, **kwargs):
        raise PermissionError(f"401 for {self.word} at https://bob:hunter2@host/{'x' * 290}")


def test_no_secret_reaches_the_record_or_the_terminal(train, monkeypatch, capfd):
    monkeypatch.setenv("MY_WORD", "zzTopSecret99")
    named = [{"name": "test_survival.Leaky", "args": {"word": "${MY_WORD}"}}, "vram"]
    out = train(callbacks=named, max_steps=2, hf_hub_token="hub-token-0815", run_name="x")
    text = b"".join(file.read_bytes() for file in (out / "obs").rglob("*") if file.is_file())
    text += "".join(line for line in capfd.readouterr().out.splitlines() if "obs]" in line).encode()
    assert b"401 for ***" in text
    for secret in (b"zzTopSecret99", b"hub-token-0815", b"hunter2"):
        assert secret not in text


def test_a_crash_is_on_record_before_it_goes_on(train, monkeypatch, tmp_path):
    from llamafactory.train.sft.trainer import CustomSeq2SeqTrainer

    def compute_loss(self, *args, **kwargs):
        if self.state.global_step == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(self, *args, **kwargs)

    real = CustomSeq2SeqTrainer.compute_loss
    monkeypatch.setattr(CustomSeq2SeqTrainer, "compute_loss", compute_loss)
    with pytest.raises(torch.OutOfMemoryError):
        train(output_dir=tmp_path / "oom", callbacks=ALL, per_device_train_batch_size=4)
    record = load_record(tmp_path / "oom")
    assert record.steps["step"] == [1, 2]
    oom = next(e for e in record.events if e["kind"] == "oom")
    assert oom["step"] == 3 and oom["evidence"]["micro_batches"][0][0] == 4
    assert oom["suggest"] == {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    assert [e["kind"] for e in record.events].count("crash") == 1
