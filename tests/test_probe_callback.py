"""The callback `probe`: a real companion beside a real training, and its verdicts in the record and the tracker."""

import hashlib
import os
import time

import psutil
import pytest

from llamafactory_obs import load_record
from llamafactory_obs.callbacks.probe import Probe
from llamafactory_obs.record.reader import read_rows
from llamafactory_obs.record.schema import EVENTS, FOLDER, PROBES, encode

SUITE = """\
name: quick
max_new_tokens: 4
max_turns: 1
probes:
  - {name: one, messages: [{role: user, content: alpha}], expect: {calls: []}}
  - {name: two, messages: [{role: user, content: beta}], expect: {contains: never said}}
"""


@pytest.fixture
def suite(tmp_path):
    file = tmp_path / "quick.yaml"
    file.write_text(SUITE)
    return file


def companions(out) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "probe" in words and str(out) in words:
            found.append(process)
    return found


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.3)


def weights(out):
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def test_a_companion_probes_each_checkpoint_beside_the_training(train, suite, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {"suite": str(suite), "backend": "local", "device": "cpu", "wait_s": 120}
    out = train(callbacks=[{"probe": options}], save_steps=2, report_to="tensorboard", logging_dir=str(tmp_path / "tb"))
    rows, torn = read_rows(out / FOLDER / PROBES)
    assert torn == 0
    asked = [(row["checkpoint"], row["probe"]) for row in rows]
    names = ["base", "checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert asked == [(name, probe) for name in names for probe in ("one", "two")], "each once, oldest first"
    for row in rows:
        assert row["rendering"]["key"] == "llamafactory:qwen3_nothink" and row["backend"]["name"] == "local"
        assert row["turns"][0]["prompt_tokens"] > 5 and "never said" not in row["output"]
        assert not row["passed"] or row["probe"] == "one"
    verdicts = [event for event in load_record(out).events if event["title"] == "verdict"]
    assert [event["step"] for event in verdicts] == [2, 4, 6]
    assert all(event["evidence"]["passed"]["two"] is False for event in verdicts)
    folder = next(path.parent for base in (tmp_path / "tb", out) for path in base.rglob("events.out.tfevents*"))
    scalars = accumulator.EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in scalars.Scalars("probe/two")] == [(2, 0), (4, 0), (6, 0)]
    assert [e.step for e in scalars.Scalars("probe_score/task")] == [2, 4, 6]
    until(lambda: not companions(out))
    ledger, _ = read_rows(out / FOLDER / "probe" / "ledger.jsonl")
    assert ("final", "done") in [(row["name"], row["state"]) for row in ledger], "same content as checkpoint-6"
    assert len(read_rows(out / FOLDER / PROBES)[0]) == len(rows)
    assert not any((out / FOLDER / "probe" / "copies").rglob("*.safetensors"))


def test_watching_does_not_change_the_run(train, suite):
    plain = train(callbacks=["vram"], save_steps=3)
    options = {"suite": str(suite), "backend": "local", "device": "cpu"}
    probed = train(callbacks=["vram", {"probe": options}], save_steps=3)
    assert weights(plain) == weights(probed)
    assert load_record(plain).steps["train/loss"] == load_record(probed).steps["train/loss"]
    until(lambda: not companions(probed))


def test_a_companion_that_cannot_start_is_no_reason_to_stop(train, suite, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.callbacks.probe.sys.executable", "/nowhere/python")
    out = train(callbacks=[{"probe": {"suite": str(suite)}}, "vram"])
    record = load_record(out)
    off = [event for event in record.events if event["kind"] == "callback_off"]
    assert len(off) == 1 and off[0]["name"] == "probe" and len(record.steps["step"]) == 6


def test_a_companion_that_ends_early_is_said_once(train, suite, monkeypatch):
    """Killed, or its call was wrong: the training goes on, and nobody believes that checkpoints are still asked."""
    monkeypatch.setattr("llamafactory_obs.callbacks.probe.sys.executable", "/bin/false")
    out = train(callbacks=[{"probe": {"suite": str(suite), "wait_s": 30}}], save_steps=2)
    ended = [event for event in load_record(out).events if event["title"] == "companion ended"]
    assert len(ended) == 1 and ended[0]["level"] == "warn" and "exit code 1" in ended[0]["text"]
    assert len(load_record(out).steps["step"]) == 6


def test_a_reward_model_is_not_probed(train):
    out = train(callbacks=["probe"], stage="rm", dataset="pairs", finetuning_type="lora")
    events = load_record(out).events
    assert [e["title"] for e in events if e["name"] == "probe"] == ["no probing"] and companions(out) == []


def test_verdicts_of_a_probe_run_by_hand_come_in_too(train, tmp_path):
    """`companion: false`: another process writes the events."""
    from transformers import TrainerCallback

    class Other(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            scores = {"format": {"right": 0, "of": 0}, "task": {"right": 1, "of": 2}, "errors": {}}
            event = {"step": 1, "time": 0.0, "segment": 0, "kind": "probe", "level": "info", "title": "verdict"}
            event |= {"text": "by hand", "evidence": {"passed": {"a": True}, "scores": scores}}
            if state.global_step == 3:
                handle = os.open(os.path.join(args.output_dir, FOLDER, EVENTS), os.O_WRONLY | os.O_APPEND)
                os.write(handle, encode(event))
                os.close(handle)

    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = train(
        callbacks=[{"probe": {"companion": False}}],
        report_to="tensorboard",
        logging_dir=str(tmp_path / "tb"),
        extra_callbacks=[Other()],
    )
    folder = next(path.parent for base in (tmp_path / "tb", out) for path in base.rglob("events.out.tfevents*"))
    scalars = accumulator.EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in scalars.Scalars("probe/a")] == [(1, 1.0)]
    assert [(e.step, e.value) for e in scalars.Scalars("probe_score/task")] == [(1, 0.5)]
    assert "probe_score/format" not in scalars.Tags()["scalars"], "0 of 0 is no number"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suite": "/no/such.yaml"}, "cannot be read"),
        ({"wait_s": -1}, "wait_s"),
        ({"backend": "vlm"}, "backend must be"),
    ],
)
def test_bad_options_are_said_before_the_training(options, words):
    with pytest.raises(ValueError, match=words):
        Probe(**options)
