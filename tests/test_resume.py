"""After a resume: one more segment, the detectors where they were, the checkpoint's step the border."""

import pytest
from transformers import TrainerCallback

from llamafactory_obs import load_record

CALLBACKS = ["grad_norm_spike", "label_mask", "layer_norms"]


def detector_state(callback) -> dict:
    """All plain values inside a callback's detectors."""

    def plain(value):
        if isinstance(value, (int, float, str, bool, type(None))):
            return value
        if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            return [plain(v) for v in value]
        return {k: plain(v) for k, v in vars(value).items()}

    return {
        name: plain(value)
        for name, value in vars(callback).items()
        if type(value).__module__.startswith("llamafactory_obs.detect")
    }


class Peek(TrainerCallback):
    """Keeps the detectors' state at the end."""

    def on_train_end(self, args, state, control, **kwargs):
        from llamafactory_obs.callbacks.base import find_trainer
        from llamafactory_obs.callbacks.recorder import Recorder

        recorder = next(c for c in find_trainer(self).callback_handler.callbacks if isinstance(c, Recorder))
        self.state = {c.yaml_name: detector_state(c) for c in recorder.callbacks}


def test_detectors_are_where_they_would_be_without_the_break(train, tmp_path):
    whole, broken = Peek(), Peek()
    unbroken = train(callbacks=CALLBACKS, max_steps=20, save_steps=100, extra_callbacks=[whole])
    out = tmp_path / "broken"
    train(output_dir=out, callbacks=CALLBACKS, max_steps=20, save_steps=12)
    resume = {"resume_from_checkpoint": str(out / "checkpoint-12"), "overwrite_output_dir": False}
    train(output_dir=out, callbacks=CALLBACKS, max_steps=20, save_steps=12, extra_callbacks=[broken], **resume)
    assert whole.state == broken.state and whole.state["grad_norm_spike"]["_spike"]

    record = load_record(out)
    assert record.steps["step"] == list(range(1, 21))
    assert record.steps["segment"] == [0] * 12 + [1] * 8
    assert record.steps["train/loss"] == load_record(unbroken).steps["train/loss"]
    resumed = [e for e in record.events if e["kind"] == "resume"]
    assert len(resumed) == 1 and resumed[0]["step"] == 12 and resumed[0]["evidence"]["rows_replayed"] == 12
    alerts = [e for e in record.events if e["kind"] == "alert" and e["segment"] == 1]
    assert alerts == [], "what was said before the break is not said again"
    segments = record.run["segments"]
    assert [s["from_step"] for s in segments] == [0, 12]
    changed = {change["key"] for change in segments[1]["changed"]}
    assert any("resume_from_checkpoint" in key for key in changed)
    assert not any(key.startswith(("data.", "packages.", "model.weights")) for key in changed)


def test_a_checkpoint_that_never_knew_us_resumes_with_us(train, tmp_path):
    out = tmp_path / "plain"
    train(output_dir=out, save_steps=3)
    train(
        output_dir=out,
        callbacks=CALLBACKS,
        save_steps=3,
        max_steps=9,
        resume_from_checkpoint=str(out / "checkpoint-3"),
        overwrite_output_dir=False,
    )
    record = load_record(out)
    assert record.steps["step"] == [4, 5, 6, 7, 8, 9]
    assert [e["level"] for e in record.events if e["kind"] == "restore"] == ["warn"]
    assert (out / "checkpoint-9" / "trainer_state.json").is_file()


def test_a_checkpoint_of_another_folder_mixes_no_records(train, tmp_path):
    other, out = tmp_path / "other", tmp_path / "out"
    train(output_dir=other, save_steps=3, max_steps=4)
    train(output_dir=out, callbacks=CALLBACKS, max_steps=8)
    resume = {"resume_from_checkpoint": str(other / "checkpoint-3"), "overwrite_output_dir": True}
    train(output_dir=out, callbacks=CALLBACKS, max_steps=5, **resume)
    assert load_record(out).steps["step"] == [4, 5]
    (old,) = (out / "obs" / "archive").iterdir()
    assert load_record(old).steps["step"] == list(range(1, 9))


def test_a_batch_size_that_is_searched_for_is_one_run(train, monkeypatch):
    import torch
    from llamafactory.train.sft.trainer import CustomSeq2SeqTrainer

    real = CustomSeq2SeqTrainer.compute_loss

    def compute_loss(self, model, inputs, *args, **kwargs):
        if len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(CustomSeq2SeqTrainer, "compute_loss", compute_loss)
    out = train(callbacks=["vram", "label_mask"], auto_find_batch_size=True, per_device_train_batch_size=4, max_steps=3)
    record = load_record(out)
    kinds = [e["kind"] for e in record.events]
    assert record.steps["step"] == [1, 2, 3] and kinds.count("retry") >= 1 and "crash" not in kinds
    assert {e["action"] for e in record.events if e["kind"] == "oom"} == {"keep"}


@pytest.mark.parametrize("place", ["data", "save"])
def test_a_batch_size_that_is_searched_for_after_a_failure_outside_of_a_step(train, monkeypatch, place):
    """Out of memory on the way to the device or in a save: the second try is counted once."""
    from llamafactory.train.sft.trainer import CustomSeq2SeqTrainer

    name = {"data": "get_batch_samples", "save": "_save_checkpoint"}[place]
    real, calls, logged = getattr(CustomSeq2SeqTrainer, name), [], {}

    def fails(self, *args, **kwargs):
        calls.append(name)
        if len(calls) == 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(self, *args, **kwargs)

    class Log(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                logged[state.global_step] = float(logs["loss"])

    monkeypatch.setattr(CustomSeq2SeqTrainer, name, fails)
    search = {"auto_find_batch_size": True, "per_device_train_batch_size": 4, "max_steps": 4, "save_steps": 1}
    record = load_record(train(callbacks=["throughput"], extra_callbacks=[Log()], **search))
    assert record.steps["train/loss"] == pytest.approx([logged[step] for step in (1, 2, 3, 4)], rel=1e-3)
    kinds = [event["kind"] for event in record.events]
    assert kinds.count("retry") == 1 and "crash" not in kinds and kinds.count("end") == 1


def test_a_checkpoint_that_knew_us_resumes_without_us(train, tmp_path):
    out = tmp_path / "known"
    train(output_dir=out, callbacks=CALLBACKS, save_steps=3)
    train(output_dir=out, max_steps=8, resume_from_checkpoint=str(out / "checkpoint-3"), overwrite_output_dir=False)
    assert load_record(out).steps["step"] == [1, 2, 3, 4, 5, 6]


def test_nothing_of_us_is_in_the_checkpoint(train):
    out = train(callbacks=CALLBACKS, save_steps=3)
    for file in (out / "checkpoint-3").iterdir():
        assert b"llamafactory_obs" not in file.read_bytes(), file.name


@pytest.mark.parametrize("times", [2])
def test_one_trainer_may_train_twice(model, tmp_path, times):
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    from llamafactory_obs import GradNormSpike, LabelMask

    rows = [{"input_ids": torch.arange(3, 11), "labels": torch.arange(3, 11)} for _ in range(8)]
    arguments = TrainingArguments(tmp_path / "hf", max_steps=3, report_to="none", use_cpu=True, save_strategy="no")
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(model),
        arguments,
        train_dataset=rows,
        callbacks=[GradNormSpike(), LabelMask()],
    )
    before = trainer.training_step
    for _ in range(times):
        trainer.train()
        assert trainer.training_step == before and "training_step" not in vars(trainer), "put back afterwards"
        assert load_record(tmp_path / "hf").steps["step"] == [1, 2, 3]
    assert len(list((tmp_path / "hf" / "obs" / "archive").iterdir())) == times - 1
