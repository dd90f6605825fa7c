"""Late verdicts in real trackers, offline: at the checkpoint's step, and nothing else of the tracker's is lost."""

import json
import struct
import sys

import pytest

from llamafactory_obs.callbacks.trackers import Trackers

STEPS = [2, 1, 4]  # the verdict on checkpoint 1 comes after that on checkpoint 2


class Late:
    """A callback that logs at steps which lie behind the training, as the probe does."""

    @staticmethod
    def make():
        from transformers import TrainerCallback

        class Callback(TrainerCallback):
            errors = []  # noqa: RUF012

            def on_train_begin(self, args, state, control, **kwargs):
                from llamafactory_obs.callbacks.base import find_trainer

                handler = find_trainer(self).callback_handler
                self.trackers = Trackers(handler.callbacks, lambda name, error: self.errors.append((name, error)))

            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == 5:
                    for step in STEPS:
                        self.trackers.log({"probe/call": step / 10}, step)

        return Callback()


def fit(train, report_to, **options):
    late = Late.make()
    out = train(report_to=report_to, extra_callbacks=[late], **options)
    assert late.errors == [] and len(late.trackers.names) == 1
    return out


def test_tensorboard(train, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = fit(train, "tensorboard", logging_dir=str(tmp_path / "tb"))
    folder = next(path.parent for base in (tmp_path / "tb", out) for path in base.rglob("events.out.tfevents*"))
    events = accumulator.EventAccumulator(str(folder)).Reload()
    assert sorted((e.step, round(e.value, 3)) for e in events.Scalars("probe/call")) == [(1, 0.1), (2, 0.2), (4, 0.4)]
    assert [e.step for e in events.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]


def log_records(data: bytes) -> list[bytes]:
    """The records of a `.wandb` file: LevelDB's log format after 7 bytes, blocks of 32 KiB, parts of one record."""
    records, part, at = [], b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(part)
            part = b""
    return records


@pytest.mark.slow
def test_wandb_keeps_late_values_and_its_own(train, tmp_path, monkeypatch):
    """LOG-1: with `step=` in the past wandb would drop them."""
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: make test-slow")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    fit(train, "wandb")
    wandb.finish()
    from wandb.proto import wandb_internal_pb2

    (file,) = tmp_path.rglob("run-*.wandb")
    history, axes = [], {}
    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
        if record.HasField("metric") and record.metric.name == "probe/call":
            axes[record.metric.name] = record.metric.step_metric
    assert [(row["obs/step"], row["probe/call"]) for row in history if "probe/call" in row] == [
        (2, 0.2),
        (1, 0.1),
        (4, 0.4),
    ]
    assert [row["train/global_step"] for row in history if "train/loss" in row] == [1, 2, 3, 4, 5, 6]
    assert axes == {"probe/call": "obs/step"}


@pytest.mark.slow
def test_swanlab_as_llamafactory_connects_it(train, tmp_path, monkeypatch):
    """LOG-5: `report_to: swanlab` crashes with swanlab 0.10 in transformers' own integration; `use_swanlab` works."""
    swanlab = pytest.importorskip("swanlab", reason="swanlab is not installed: make test-slow")
    start = swanlab.init  # LlamaFactory knows only "cloud" and "local", and "local" needs one more package
    monkeypatch.setattr(swanlab, "init", lambda *args, **options: start(*args, **{**options, "mode": "offline"}))
    monkeypatch.chdir(tmp_path)
    fit(train, "none", use_swanlab=True, swanlab_logdir=str(tmp_path / "swan"))
    swanlab.finish()
    written = b"".join(path.read_bytes() for path in (tmp_path / "swan").rglob("*") if path.is_file())
    assert b"probe/call" in written and b"train/loss" in written


@pytest.mark.slow
def test_trackio(train, tmp_path, monkeypatch):
    import sqlite3

    pytest.importorskip("trackio", reason="trackio is not installed: it wants another gradio than LlamaFactory 0.9.5")
    import trackio.utils

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "trackio"
    for module in (trackio.utils, *(m for n, m in list(sys.modules.items()) if n.startswith("trackio."))):
        if hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", folder)
    fit(train, "trackio")
    found = []
    for file in folder.rglob("*.db"):
        with sqlite3.connect(file) as base:
            found += [
                (step, json.loads(metrics)) for step, metrics in base.execute("select step, metrics from metrics")
            ]
    assert sorted((step, m["probe/call"]) for step, m in found if "probe/call" in m) == [(1, 0.1), (2, 0.2), (4, 0.4)]
    assert len([m for _, m in found if "train/loss" in m]) == 6


def test_a_tracker_that_fails_is_named_once_and_left_out():
    class WandbCallback:
        class _wandb:
            class run:
                @staticmethod
                def define_metric(*args, **kwargs):
                    raise ConnectionError("gone")

    errors = []
    trackers = Trackers([WandbCallback(), object()], lambda name, error: errors.append((name, str(error))))
    trackers.log({"probe/a": 1.0}, 1)
    trackers.log({"probe/a": 1.0}, 2)
    assert errors == [("WandbCallback", "gone")] and trackers.names == []
