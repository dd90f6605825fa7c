"""Late verdicts in real trackers, offline: at the checkpoint's step, and nothing else of the tracker's is lost."""

import json

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
    from wandb.sdk.internal.datastore import DataStore

    (file,) = tmp_path.rglob("run-*.wandb")
    store, history, axes = DataStore(), [], {}
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            history.append(
                {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            )
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
def test_swanlab(train, tmp_path, monkeypatch):
    pytest.importorskip("swanlab", reason="swanlab is not installed: make test-slow")
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    monkeypatch.setenv("SWANLAB_LOG_DIR", str(tmp_path / "swan"))
    monkeypatch.setenv("SWANLAB_SAVE_DIR", str(tmp_path / "save"))
    fit(train, "swanlab")
    text = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"probe/call" in text


@pytest.mark.slow
def test_trackio(train, tmp_path, monkeypatch):
    trackio = pytest.importorskip("trackio", reason="trackio is not installed: make test-slow")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.chdir(tmp_path)
    fit(train, "trackio")
    assert trackio is not None


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
