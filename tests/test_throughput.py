"""`throughput`: the parts of a step against a profiler's trace, planted delays and a clock; tokens against a count."""

import json
import time

import pytest
import torch
from tiny import conversations, tiny_config
from transformers import TrainerCallback

from llamafactory_obs import load_record
from llamafactory_obs.callbacks.phases import Phases, Spans
from llamafactory_obs.callbacks.throughput import PARTS

COLUMNS = [f"time/{part}_s" for part in (*PARTS, "callbacks")]


def seconds(record, name: str) -> float:
    return sum(record.steps[f"time/{name}_s"])


class Profiled(TrainerCallback):
    """A torch profiler from the end of step 1 to the end of the last step; the trace is the reference."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.__enter__()
            self.began = time.perf_counter()
        if state.global_step == state.max_steps:
            self.wall = time.perf_counter() - self.began

    def on_train_end(self, args, state, control, **kwargs):
        self.profiler.__exit__(None, None, None)

    def spans(self, *starts: str) -> list[tuple[float, float]]:
        """(start, end) in seconds of the trace's events whose name begins so."""
        events = [e for e in self.profiler.events() if e.name.startswith(starts)]
        return [(e.time_range.start / 1e6, e.time_range.end / 1e6) for e in events]


def test_parts_against_a_profiler_s_trace(train):
    profiled = Profiled()
    out = train(
        callbacks=["throughput"],
        max_steps=9,
        max_grad_norm=0,
        per_device_train_batch_size=4,
        extra_callbacks=[profiled],
    )
    steps = load_record(out).steps
    after_first = {name: sum(steps[name][1:]) for name in ("time/step_s", *COLUMNS)}
    norms = profiled.spans("aten::_foreach_norm")  # clipping begins with it, the update ends what is called optimizer
    update = sum(end - max(at for at, _ in norms if at < start) for start, end in profiled.spans("Optimizer.step"))
    loading = sum(end - start for start, end in profiled.spans("enumerate(DataLoader)"))
    engine = sorted(profiled.spans("autograd::engine::evaluate_function"))
    backward, start, end = 0.0, *engine[0]
    for begins, ends in [*engine[1:], (float("inf"), 0.0)]:
        if begins - end > 0.01:  # between two backward passes lie an update and a forward pass
            backward, start = backward + end - start, begins
        end = max(end, ends) if begins < float("inf") else end
    assert after_first["time/optimizer_s"] == pytest.approx(update, rel=0.25, abs=0.01)
    assert after_first["time/data_wait_s"] == pytest.approx(loading, rel=0.25, abs=0.02)
    assert after_first["time/backward_s"] == pytest.approx(backward, rel=0.25, abs=0.02)
    assert after_first["time/step_s"] == pytest.approx(profiled.wall, rel=0.1, abs=0.05)


def test_the_parts_add_up_and_the_steps_fill_the_wall_clock(train):
    start = time.time()
    record = load_record(train(callbacks=["throughput", "label_mask"], gradient_accumulation_steps=2))
    steps = record.steps
    for i, whole in enumerate(steps["time/step_s"]):
        assert sum(steps[name][i] for name in COLUMNS) == pytest.approx(whole, rel=1e-9)
        assert all(steps[name][i] >= 0 for name in COLUMNS)
    began = next(event["time"] for event in record.events if event["kind"] == "start")
    assert start < began and sum(steps["time/step_s"]) == pytest.approx(steps["time"][-1] - began, abs=0.1)
    assert steps["time/unusual"][0] == 1.0 and 0.0 in steps["time/unusual"]


class Slow(TrainerCallback):
    """Delays in known places: 50 ms in every forward pass, backward pass, update, and 200 ms in save and evaluation."""

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        def sleep(*_):
            if model.training:
                time.sleep(0.05)

        model.register_forward_hook(sleep)
        next(model.parameters()).register_hook(lambda gradient: time.sleep(0.05))
        optimizer.optimizer.register_step_pre_hook(lambda *_: time.sleep(0.05))

    def on_save(self, args, state, control, **kwargs):  # called after the save: not part of it
        time.sleep(0.1)

    def on_evaluate(self, args, state, control, **kwargs):
        time.sleep(0.2)


def test_a_planted_delay_is_found_in_its_part(train, monkeypatch):
    from llamafactory.data.collator import SFTDataCollatorWith4DAttentionMask as Collator

    collate = Collator.__call__
    monkeypatch.setattr(Collator, "__call__", lambda self, rows: (time.sleep(0.05), collate(self, rows))[1])
    common = {"max_steps": 4, "val_size": 0.1, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    steps = load_record(train(callbacks=["throughput"], extra_callbacks=[Slow()], **common)).steps
    for name in ("forward", "backward", "optimizer", "data_wait"):
        assert min(steps[f"time/{name}_s"]) >= 0.05 * 0.99, name
        assert sum(steps[f"time/{name}_s"]) < 4 * 0.05 + 2, name  # a busy machine
    # what follows step 2 counts into step 3; the forward passes of the evaluation are evaluation
    assert [x > 0.2 for x in steps["time/eval_s"]] == [False, False, True, False]
    assert [x > 0 for x in steps["time/checkpoint_s"]] == [False, False, True, False]
    assert steps["time/other_s"][2] >= 0.1 > max(steps["time/other_s"][1], steps["time/other_s"][3])
    assert steps["time/unusual"][2] == 1.0


def test_tokens_a_second_against_a_hand_count(train, model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    out = train(callbacks=["throughput"], max_steps=3, per_device_train_batch_size=16, disable_shuffling=True)
    steps = load_record(out).steps
    rows, total = conversations(48), 0
    for step in range(3):
        texts = [
            f"<|im_start|>user\n{row['instruction']}<|im_end|>\n<|im_start|>assistant\n{row['output']}<|im_end|>\n"
            for row in rows[16 * step : 16 * step + 16]
        ]
        tokens = sum(min(128, len(tokenizer(text)["input_ids"])) for text in texts)
        total += tokens
        rate = steps["system/tokens_per_sec"][step]
        assert rate * steps["time/step_s"][step] == pytest.approx(tokens)
        assert steps["system/tokens_per_sec_per_device"][step] == rate
        assert 0 < steps["system/supervised_tokens_per_sec"][step] < rate
    wall = sum(steps["time/step_s"])
    assert steps["system/session_tokens_per_sec"][2] == pytest.approx(total / wall, rel=0.02)


def test_after_a_resume_the_rate_is_that_of_the_session(train, tmp_path):
    out = tmp_path / "run"
    train(output_dir=out, callbacks=["throughput"], max_steps=12, save_steps=8)
    resume = {"resume_from_checkpoint": str(out / "checkpoint-8"), "overwrite_output_dir": False}
    train(output_dir=out, callbacks=["throughput"], max_steps=12, save_steps=8, **resume)
    steps = load_record(out).steps
    assert steps["segment"][8:] == [1] * 4
    tokens = [rate * s for rate, s in zip(steps["system/tokens_per_sec"], steps["time/step_s"], strict=True)]
    wall = sum(steps["time/step_s"][8:])
    assert steps["system/session_tokens_per_sec"][-1] == pytest.approx(sum(tokens[8:]) / wall, rel=0.05)
    host = [json.loads(line) for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    assert all("throughput" not in row for row in host), "LlamaFactory's own rate is not read"


class Event:
    """A CUDA event as torch has it: reached when the device gets there, some time after the host has recorded it."""

    now, done = 0.0, -1.0

    def __init__(self):
        self.at = Event.now

    def query(self) -> bool:
        return Event.done >= self.at

    def synchronize(self) -> None:
        Event.done = max(Event.done, self.at)

    def elapsed_time(self, other) -> float:
        assert other.query(), "read before the device got there"
        return (other.at - self.at) * 1000


def test_marks_on_a_device_are_read_when_it_has_got_there():
    Event.now = 0.0
    phases = Phases(Event)
    for part, begins, ends in (("data_wait", 1, 3), ("forward", 3, 7), ("backward", 8, 20)):
        Event.now = begins
        with phases.part(part):
            Event.now = ends
    Event.now = 21.0
    spans = Spans(phases.take())
    assert not spans.ready()
    Event.done = 21.0
    assert spans.ready()
    assert spans.values() == [{"other": 1 + 1 + 1, "data_wait": 2, "forward": 4, "backward": 12}]
    Event.now = Event.done = 25.0
    later = Spans(phases.take())
    later.wait()
    assert later.values() == [{"other": 4}]


def test_inner_parts_stop_the_outer_one_and_an_evaluation_swallows_all_but_our_callbacks():
    clock = iter(range(100))
    phases = Phases(lambda: float(next(clock)))  # each mark is one second after the last
    with phases.part("data_wait"), phases.part("h2d"):
        pass
    with phases.part("eval"), phases.part("forward"), phases.part("callbacks"):
        pass
    with phases.part("backward"):
        phases.enter("communication")  # ends with the block around it
    (found,) = Spans(phases.take()).values()
    assert found == {"other": 4.0, "data_wait": 2.0, "h2d": 1.0, "eval": 2.0, "callbacks": 1.0} | {
        "backward": 1.0,
        "communication": 1.0,
    }


def test_a_mark_that_fails_switches_the_callback_off_and_the_training_goes_on(train, monkeypatch):
    from llamafactory_obs.callbacks import throughput

    made = []

    def failing():
        made.append(1)
        if len(made) > 60:
            raise RuntimeError("the device is gone")
        return time.perf_counter()

    monkeypatch.setattr(throughput, "marks_of", lambda device: failing)
    record = load_record(train(callbacks=["throughput"]))
    off = [event for event in record.events if event["kind"] == "callback_off"]
    assert len(off) == 1 and "the device is gone" in off[0]["text"]
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6] and None not in record.steps["train/loss"]
    assert record.steps["time/callbacks_s"][-1] > 0, "the recorder measures its own cost again"


def test_nothing_stays_behind(train):
    import gc

    from accelerate import data_loader, utils

    before = list(gc.callbacks)
    train(callbacks=["throughput"], max_steps=2)
    assert gc.callbacks == before and data_loader.send_to_device is utils.send_to_device


@pytest.mark.slow
def test_two_ranks_wait_for_each_other(model, data, tmp_path):
    """Rank 1 sleeps 0.2 s in each forward pass: rank 0 waits that long in the communication after its backward pass."""
    from test_ranks import torchrun

    config = tiny_config(model, data, tmp_path / "two", callbacks=["throughput"], max_steps=4)
    done = torchrun("train", {**config, "slow_rank": 1})
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    steps = load_record(tmp_path / "two").steps
    for i, whole in enumerate(steps["time/step_s"]):
        assert sum(steps[name][i] for name in COLUMNS) == pytest.approx(whole, rel=1e-6)
    waited = sorted(steps["time/communication_s"][1:])[1]
    assert 0.08 < waited < 0.2, "the mean of both ranks: one waits 0.2 s, the other not"
    assert sorted(steps["time/forward_s"][1:])[1] > 0.1
    assert steps["system/tokens_per_sec"][1] == pytest.approx(2 * steps["system/tokens_per_sec_per_device"][1])
