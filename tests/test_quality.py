"""`quality` and the loss's normaliser: numbers against the Trainer's own, verdicts of the probe on the step axis."""

import json
import os
import shutil

import pytest
import torch
from tiny import conversations
from transformers import TrainerCallback

from llamafactory_obs import Quality, load_record
from llamafactory_obs.record.schema import EVENTS, FOLDER, encode

EVAL = {"val_size": 0.2, "eval_strategy": "steps", "eval_steps": 2}


def verdict(step: int) -> dict:
    layers = {"format": {"right": 0, "of": 0}, "tool_choice": {"right": 1, "of": 3}, "task": {"right": 1, "of": 2}}
    scores = layers | {"errors": {"invalid_json": 2, "wrong_tool": 1}}
    event = {"step": step, "time": 0.0, "segment": 0, "kind": "probe", "level": "info", "title": "verdict"}
    return event | {"text": "by hand", "evidence": {"passed": {"a": True, "b": False}, "scores": scores}}


class Other(TrainerCallback):
    """A probe run by hand: another process that appends a verdict to the record."""

    def __init__(self, at: int, about: int):
        self.at, self.about = at, about

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.at:
            handle = os.open(os.path.join(args.output_dir, FOLDER, EVENTS), os.O_WRONLY | os.O_APPEND)
            os.write(handle, encode(verdict(self.about)))
            os.close(handle)


def test_gap_and_best_of_real_evaluations(train):
    out = train(callbacks=["quality"], max_steps=6, **EVAL)
    steps = load_record(out).steps
    loss, evaluated = steps["train/loss"], steps["eval/loss"]
    for at in (2, 4, 6):
        mean = (loss[at - 2] + loss[at - 1]) / 2
        assert steps["quality/train_loss"][at - 1] == pytest.approx(mean)
        assert steps["quality/gap"][at - 1] == pytest.approx(evaluated[at - 1] - mean)
        seen = {step: evaluated[step - 1] for step in (2, 4, 6) if step <= at}
        best = min(seen, key=seen.get)
        assert steps["quality/best_loss"][at - 1] == seen[best]
        assert steps["quality/steps_since_best"][at - 1] == at - best
    assert steps["quality/gap"][0] is None


def test_an_evaluation_before_the_first_step_has_no_gap(train):
    record = load_record(train(callbacks=["quality"], max_steps=2, eval_on_start=True, **EVAL))
    assert record.steps["step"] == [0, 1, 2]
    first = {name: column[0] for name, column in record.steps.items()}
    assert first["quality/gap"] is None and first["quality/best_loss"] == first["eval/loss"]


def test_several_sets_and_a_metric_of_the_task(train, data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "two sets")
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"more": {"file_name": "more.json"}}))
    (folder / "more.json").write_text(json.dumps(conversations(60)[48:]))
    several = {
        "dataset_dir": str(folder),
        "eval_dataset": "rows,more",
        "eval_on_each_dataset": True,
        "compute_accuracy": True,
    }
    several |= {"eval_strategy": "steps", "eval_steps": 2}
    best = {"metric_for_best_model": "eval_rows_accuracy", "greater_is_better": True}
    record = load_record(train(callbacks=["quality"], max_steps=4, **several, **best))
    steps = record.steps
    for name in ("rows", "more"):
        gap = steps[f"eval/{name}_loss"][3] - (steps["train/loss"][2] + steps["train/loss"][3]) / 2
        assert steps[f"quality/{name}_gap"][3] == pytest.approx(gap)
    assert steps["quality/best_metric"][3] == max(steps["eval/rows_accuracy"][1], steps["eval/rows_accuracy"][3])
    assert [e for e in record.events if e["kind"] == "callback_off"] == []


class Worse(TrainerCallback):
    """Makes the evaluation loss rise, whatever it is."""

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        metrics["eval_loss"] = 1.0 + state.global_step / 10


@pytest.mark.parametrize("worse", [True, False])
def test_overfitting_names_the_best_checkpoint(train, worse):
    out = train(
        callbacks=["quality"],
        extra_callbacks=[Worse()] if worse else [],
        max_steps=8,
        save_steps=2,
        learning_rate=1e-2,
        **EVAL,
    )
    alerts = [e for e in load_record(out).events if e["kind"] == "alert"]
    assert [(e["title"], e["step"], e["action"]) for e in alerts] == ([("overfitting", 8, "keep")] if worse else [])
    assert not worse or ("Use checkpoint-2" in alerts[0]["text"] and alerts[0]["evidence"]["best_step"] == 2)


def test_verdicts_are_columns_of_their_checkpoint(train, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = train(
        callbacks=["quality", {"probe": {"companion": False}}],
        report_to="tensorboard",
        logging_dir=str(tmp_path / "tb"),
        extra_callbacks=[Other(4, 2)],
    )
    record = load_record(out)
    assert record.steps["probe_error/invalid_json"] == [None, 2.0, None, None, None, None]
    assert record.steps["probe_error/wrong_tool"][1] == 1 and record.steps["probe_score/task"][1] == 0.5
    assert "probe_score/format" not in record.steps, "0 of 0 is no number"
    assert None not in record.steps["train/loss"]
    folder = next(path.parent for base in (tmp_path / "tb", out) for path in base.rglob("events.out.tfevents*"))
    scalars = accumulator.EventAccumulator(str(folder)).Reload()
    for name, value in (("probe_error/invalid_json", 2), ("probe_score/task", 0.5), ("probe/a", 1)):
        assert [(e.step, e.value) for e in scalars.Scalars(name)] == [(2, value)], "once, though both callbacks are on"


def test_without_the_callback_probe_the_scores_reach_the_tracker_too(train, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = train(
        callbacks=["quality"], report_to="tensorboard", logging_dir=str(tmp_path / "tb"), extra_callbacks=[Other(6, 6)]
    )
    folder = next(path.parent for base in (tmp_path / "tb", out) for path in base.rglob("events.out.tfevents*"))
    scalars = accumulator.EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in scalars.Scalars("probe_score/task")] == [(6, 0.5)]
    assert load_record(out).steps["probe_score/task"][5] == 0.5


def test_a_verdict_that_comes_after_a_resume_joins_the_old_row(train, tmp_path):
    options = {"callbacks": ["quality"], "save_steps": 4, "output_dir": tmp_path / "run", **EVAL}
    out = train(max_steps=4, **options)
    best = load_record(out).steps["quality/best_loss"][3]
    more = options | {"overwrite_output_dir": False, "resume_from_checkpoint": str(out / "checkpoint-4")}
    train(max_steps=6, extra_callbacks=[Other(5, 4)], **more)
    steps = load_record(out).steps
    assert steps["probe_error/invalid_json"][3] == 2 and steps["train/loss"][3] is not None
    assert steps["segment"] == [0, 0, 0, 0, 1, 1]
    assert steps["quality/best_loss"][5] == min(best, steps["eval/loss"][5]), "remembered over the resume"


@pytest.mark.parametrize("planted", [True, False])
def test_a_normaliser_that_changes_within_a_step(train, monkeypatch, planted):
    """LOSS-3: what the Trainer hands to its micro-batches; a healthy run beside it."""
    counts, seen = [279, 279, 470, 470], []
    if planted:
        from llamafactory_obs.callbacks.recorder import Recorder

        micro_batch = Recorder.micro_batch

        def changed(self, inputs, normaliser):
            seen.append(normaliser)
            micro_batch(self, inputs, torch.tensor(counts[(len(seen) - 1) % 4]))

        monkeypatch.setattr(Recorder, "micro_batch", changed)
    out = train(callbacks=[{"label_mask": {"range": [0, 1]}}], max_steps=3, gradient_accumulation_steps=4)
    alerts = [e for e in load_record(out).events if e["kind"] == "alert"]
    assert [(e["title"], e["step"], e["level"]) for e in alerts] == (
        [("normaliser not constant", 1, "warn")] if planted else []
    )
    assert not planted or alerts[0]["evidence"]["counts"] == counts


def test_the_best_model_that_is_back_does_not_speak_for_the_last_step(train):
    """`load_best_model_at_end`: LlamaFactory's evaluation after training is one of another step's weights."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "save_strategy": "steps"}
    steps = {"max_steps": 3, "eval_steps": 1, "save_steps": 1, "learning_rate": 0.5}
    record = load_record(train(callbacks=["quality"], **EVAL | best | steps))
    told = [event["evidence"]["eval/loss"] for event in record.events if event["kind"] == "eval"]
    assert len(told) == 4 and told[3] == min(told) < told[2], "the run gets worse, and the best is evaluated again"
    assert record.steps["eval/loss"] == pytest.approx(told[:3])
    assert record.steps["quality/best_loss"][2] == pytest.approx(min(told))


def test_a_metric_that_is_no_number_is_not_the_best(train):
    class Metric(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            metrics["eval_score"] = {2: float("nan"), 4: 0.5}.get(state.global_step, 0.25)

    best = {"metric_for_best_model": "eval_score", "greater_is_better": True}
    out = train(callbacks=["quality"], extra_callbacks=[Metric()], max_steps=6, **EVAL, **best)
    assert load_record(out).steps["quality/best_metric"] == [None, None, None, 0.5, None, 0.5]


def test_bad_options():
    with pytest.raises(ValueError, match="patience"):
        Quality(patience=0)
