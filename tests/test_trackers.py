"""Real trackers, offline, read back from their own files: every number at its step, once; alerts; the identity."""

import math
import sys

import pytest
import tracker_files

from llamafactory_obs import load_record
from llamafactory_obs.callbacks.base import ObsCallback
from llamafactory_obs.callbacks.trackers import Trackers, tracker_name
from llamafactory_obs.plugin.registry import OWN

#: the probe's companion has tests of its own
ALL = [{"probe": {"companion": False}} if name == "probe" else name for name in OWN]
LATE = [2, 1, 4]  # the verdict on checkpoint 1 comes after that on checkpoint 2


class Planted(ObsCallback):
    """An alert at step 3 (with a secret-free text), and values that arrive late, as the probe's do."""

    yaml_name = "planted"

    def row(self, row):
        if row.step == 3:
            self.run.event("alert", "planted", "planted alert", "what to do now", level="warn", step=3)
        if row.step == 5:
            for step in LATE:
                self.run.trackers.log({"probe/call": step / 10}, step)


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """`connect(name)` -> the config that reports to this tracker offline, and what reads its files afterwards."""
    folder = tmp_path / "tracker"

    def wandb():
        module = pytest.importorskip("wandb", reason="wandb is not installed: make test-slow")
        for name, value in {"MODE": "offline", "DIR": str(folder), "SILENT": "true"}.items():
            monkeypatch.setenv(f"WANDB_{name}", value)
        folder.mkdir()
        return {"report_to": "wandb"}, lambda: (module.finish(), module.teardown(), tracker_files.wandb(folder))[2]

    def swanlab():
        """LOG-5: `report_to: swanlab` crashes with swanlab 0.10 in transformers' own integration."""
        module = pytest.importorskip("swanlab", reason="swanlab is not installed: make test-slow")
        start = module.init  # LlamaFactory knows only "cloud" and "local", and "local" needs one more package
        monkeypatch.setattr(module, "init", lambda *args, **options: start(*args, **{**options, "mode": "offline"}))
        monkeypatch.chdir(tmp_path)
        options = {"use_swanlab": True, "swanlab_logdir": str(folder)}
        return options, lambda: (module.finish(), tracker_files.swanlab(folder))[1]

    def trackio():
        pytest.importorskip("trackio", reason="trackio wants another gradio than LlamaFactory: make test-trackio")
        import trackio.utils

        monkeypatch.chdir(tmp_path)
        for module in (trackio.utils, *(m for n, m in list(sys.modules.items()) if n.startswith("trackio."))):
            if hasattr(module, "TRACKIO_DIR"):
                monkeypatch.setattr(module, "TRACKIO_DIR", folder)
        return {"report_to": "trackio"}, lambda: tracker_files.trackio(folder)

    def mlflow():
        pytest.importorskip("mlflow", reason="mlflow is not installed: make test-slow")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{folder}")
        return {"report_to": "mlflow"}, lambda: tracker_files.mlflow(folder)

    def tensorboard():
        pytest.importorskip("tensorboard", reason="tensorboard is not installed: make test")
        return {"report_to": "tensorboard", "logging_dir": str(folder)}, lambda: tracker_files.tensorboard(tmp_path)

    ways = {"tensorboard": tensorboard, "wandb": wandb, "swanlab": swanlab, "mlflow": mlflow, "trackio": trackio}
    return lambda name: ways[name]()


def same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))  # TensorBoard holds float32


def check_rows(found, record) -> None:
    """Every number of the record stands in the tracker at its step, once, and nothing else of ours does."""
    for column, numbers in record.steps.items():
        name = None if column in ("step", "time", "segment") else tracker_name(column)
        if name is None:
            continue
        wanted = [(s, v) for s, v in zip(record.steps["step"], numbers, strict=True) if v is not None]
        got = sorted(found.series[name])
        assert [step for step, _ in got] == [step for step, _ in wanted], name
        assert all(same(a, b) for (_, a), (_, b) in zip(got, wanted, strict=True)), name


NAMES = ["tensorboard", *(pytest.param(n, marks=pytest.mark.slow) for n in ("wandb", "swanlab", "mlflow", "trackio"))]
RUNS = {
    "sft": {"val_size": 0.2, "eval_strategy": "steps", "eval_steps": 2, "gradient_accumulation_steps": 2},
    "dpo": {"stage": "dpo", "dataset": "pairs", "finetuning_type": "lora"},
    "pt": {"stage": "pt", "dataset": "text", "cutoff_len": 32},
    "packing": {"packing": True, "cutoff_len": 64},
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_alert_and_the_identity(connect, train, name, run, capfd):
    options, read = connect(name)
    out = train(callbacks=ALL, logging_steps=2, extra_callbacks=[Planted()], **{**RUNS[run], **options})
    record, found = load_record(out), read()
    kinds = [event["kind"] for event in record.events]
    assert "callback_off" not in kinds[: kinds.index("end")]  # later: LlamaFactory's last evaluation, without a run
    check_rows(found, record)
    own = "loss" if name == "mlflow" else "train/loss"
    assert [step for step, _ in found.series[own]] == [2, 4, 6], "the Trainer's own, untouched"
    if run == "sft":
        assert {step for step, _ in found.series["eval_loss" if name == "mlflow" else "eval/loss"]} == {2, 4, 6}
    late = [(step, round(value, 6)) for step, value in sorted(found.series["probe/call"])]
    assert late == [(1, 0.1), (2, 0.2), (4, 0.4)], "LOG-1: late values are kept"
    loud = [event for event in record.events[: kinds.index("end")] if event["level"] != "info"]
    wanted = [(event["step"], f"{event['name']}: {event['title']}"[:63], event["text"]) for event in loud]
    assert (3, "planted: planted alert", "what to do now") in wanted
    assert sorted(found.alerts) == sorted(wanted)
    assert found.identity["packages"]["llamafactory"] == record.run["packages"]["main"]["llamafactory"]
    if name != "trackio":  # its config is sent with the first row, before the hashes are known
        assert found.identity["data"]["rows_sha256"] == record.run["data"]["rows"]["sha256"]
        assert found.identity["model"]["weights_sha256"] == record.run["model"]["weights"]["sha256"]
    assert "monotonically" not in capfd.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_after_a_resume_no_row_is_sent_again(connect, train, name):
    first = train(callbacks=ALL, max_steps=4, save_steps=2)
    options, read = connect(name)
    train(
        callbacks=ALL,
        max_steps=6,
        output_dir=first,
        resume_from_checkpoint=str(first / "checkpoint-2"),
        overwrite_output_dir=False,
        **options,
    )
    found = read()
    assert sorted(step for step, _ in found.series["train/lr"]) == [3, 4, 5, 6]


@pytest.mark.slow
def test_wandb_s_axis(connect, train):
    """With `step=` in the past wandb would drop late values (LOG-1)."""
    options, read = connect("wandb")
    train(callbacks=["label_mask"], extra_callbacks=[Planted()], **options)
    found = read()
    for name in ("probe/call", "data/tokens", "obs/train/loss"):
        assert found.series[f"axis of {name}"] == [(None, "obs/step")]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_is_no_number_harms_nothing(connect, train, name):
    class Holes(ObsCallback):
        yaml_name = "holes"

        def row(self, row):
            self.run.trackers.log({"hole/nan": math.nan, "hole/inf": math.inf, "hole/one": 1.0}, row.step)

    options, read = connect(name)
    out = train(callbacks=["label_mask"], extra_callbacks=[Holes()], max_steps=2, **options)
    assert not [event for event in load_record(out).events if event["kind"] == "callback_off"]
    assert sorted(read().series["hole/one"]) == [(1, 1.0), (2, 1.0)]


def test_a_tracker_that_fails_is_named_once_and_left_out():
    class WandbCallback:
        class _wandb:
            class run:
                @staticmethod
                def define_metric(*args, **kwargs):
                    raise ConnectionError("gone")

    errors = []
    trackers = Trackers([WandbCallback(), object()], lambda name, error: errors.append((name, str(error))))
    assert trackers.names == ["WandbCallback"]
    trackers.log({"probe/a": 1.0}, 1)
    trackers.log({"probe/a": 1.0}, 2)
    trackers.alert("a", "b", "warn", 2)
    assert errors == [("WandbCallback", "gone")] and trackers.names == []
