"""`auto`: a planted spike gets its remedy, a healthy twin is left alone, and NaN is never scaled."""

import math

import pytest
import torch
from commander import Commander
from safetensors.torch import load_file
from transformers import TrainerCallback

from llamafactory_obs import load_record
from llamafactory_obs.control.auto import Auto
from llamafactory_obs.control.options import ControlOptions, parse_control
from llamafactory_obs.control.order import Order
from llamafactory_obs.detect import Finding
from llamafactory_obs.errors import ConfigError


class Poison(TrainerCallback):
    """Multiplies the gradients of some steps."""

    def __init__(self, factors: dict[int, float]):
        self._factors = factors

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        for parameter in model.parameters():
            parameter.register_hook(lambda g: g * self._factors.get(state.global_step + 1, 1.0))


def alarms(record) -> list[int]:
    return [event["step"] for event in record.events if event["title"] == "spike" and event["level"] == "error"]


def scaled_at(record) -> list[int]:
    return [event["step"] for event in record.events if (event["kind"], event["title"]) == ("control", "auto")]


def test_scale_lr_has_its_limits_and_a_resume_keeps_the_count(train):
    spikes = {14: 1e3, 28: 1e4, 42: 1e5, 56: 1e6}
    auto = {"auto": "scale_lr", "lr_scale": 0.5, "max_times": 2, "cooldown_steps": 20}
    config = {"callbacks": ["grad_norm_spike"], "obs": {"control": auto}, "logging_steps": 100, "save_steps": 10}
    folder = train(extra_callbacks=[Poison(spikes)], max_steps=50, **config)
    record = load_record(folder)
    assert alarms(record) == [14, 28, 42] and scaled_at(record) == [14, 42], "28 is within the cooldown"
    assert record.steps["train/lr"] == pytest.approx([1e-3] * 14 + [5e-4] * 28 + [2.5e-4] * 8)
    event = next(event for event in record.events if event["title"] == "auto")
    assert event["suggest"] == {"resume_from_checkpoint": str(folder / "checkpoint-10")}
    assert event["text"].startswith("auto: spike since step 14 (grad_norm_spike): learning rate 0.001 -> 0.0005 (")
    assert f". If it does not come back, resume from {folder}/checkpoint-10; " in event["text"]
    assert event["evidence"]["lr_scale"] == 0.5
    said = next(event for event in record.events if event["title"] == "auto is on")
    assert said["level"] == "info" and "at most 2 times" in said["text"]

    config |= {"extra_callbacks": [Poison(spikes)], "max_steps": 58}
    train(folder, resume_from_checkpoint=str(folder / "checkpoint-50"), **config)
    record = load_record(folder)
    assert alarms(record)[3:] == [56], "a third time"
    assert scaled_at(record) == [14, 42] and record.steps["train/lr"][-8:] == pytest.approx([2.5e-4] * 8)
    train(folder, resume_from_checkpoint=str(folder / "checkpoint-30"), **config | {"max_steps": 44})
    record = load_record(folder)
    assert scaled_at(record)[2:] == [42], "from 30 on one of the two is still to come"
    assert record.steps["train/lr"][30:44] == pytest.approx([5e-4] * 12 + [2.5e-4] * 2)


def test_a_healthy_twin_is_left_alone(train):
    config = {"max_steps": 20, "logging_steps": 100}
    auto = {"obs": {"control": {"auto": "scale_lr"}}, "callbacks": ["grad_norm_spike"]}
    one, other = (load_file(train(**config, **more) / "model.safetensors") for more in ({}, auto))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_stop_saves_and_names_the_checkpoint_before_the_spike(train):
    config = {"callbacks": ["grad_norm_spike"], "obs": {"control": {"auto": "stop"}}, "save_steps": 10}
    folder = train(extra_callbacks=[Poison({16: 1e3})], max_steps=40, **config)
    record = load_record(folder)
    assert record.steps["step"][-1] == 16 and (folder / "checkpoint-16").is_dir()
    event = next(event for event in record.events if event["title"] == "auto")
    assert event["evidence"]["resume_from"] == str(folder / "checkpoint-10")
    assert f"resume from {folder}/checkpoint-10" in event["text"]


@pytest.mark.parametrize("mode", ["stop", "scale_lr"])
def test_nan_is_stopped_without_a_checkpoint_and_never_scaled(train, mode):
    config = {"callbacks": ["grad_norm_spike"], "obs": {"control": {"auto": mode}}}
    folder = train(extra_callbacks=[Poison({5: math.nan})], max_steps=8, save_strategy="no", **config)
    record = load_record(folder)
    assert record.steps["step"][-1] == (5 if mode == "stop" else 8)
    assert not list(folder.glob("checkpoint-*")) and "train/lr_scale" not in record.steps


def test_a_command_to_stop_does_not_save_weights_that_are_dead(train, tmp_path):
    commander = Commander(tmp_path / "dead", {5: ["--stop"]})
    poison = Poison({3: math.nan})
    folder = train(commander.output_dir, [commander, poison], callbacks=["vram"], max_steps=8, save_strategy="no")
    code, reply = commander.replies()[5]
    assert code == 0 and [result["what"] for result in reply["results"]] == ["stop"]
    assert load_record(folder).steps["step"][-1] == 5 and not list(folder.glob("checkpoint-*"))
    event = next(event for event in load_record(folder).events if event["kind"] == "control")
    assert "no checkpoint, because the last step's loss or gradients were not finite" in event["text"]


def finding(name="spike", level="error", action="keep") -> Finding:
    return Finding(name, level, 1, "", action=action)


def test_what_auto_decides():
    scale, stop = ControlOptions(auto="scale_lr"), ControlOptions(auto="stop")
    assert Auto(ControlOptions()).decide(1, finding()) is None
    assert Auto(scale).decide(1, finding()) == Order(lr_scale=0.5)
    assert Auto(scale).decide(1, finding("diverged", "warn", "kill")) == Order(lr_scale=0.5)
    for other in (finding(level="warn"), finding("stalled"), finding("nan"), finding("inf")):
        assert Auto(scale).decide(1, other) is None
    assert Auto(stop).decide(1, finding()) == Order(stop=True, save=True)
    assert Auto(stop).decide(1, finding("inf")) == Order(stop=True)
    assert Auto(stop).decide(1, finding("stalled")) is None
    once = Auto(stop)
    assert once.decide(1, finding()) and once.decide(2, finding("nan")) is None, "it stops already"
    some = Auto(scale, times=1, last=10)
    assert [step for step in range(50, 200) if some.decide(step, finding())] == [61]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ("stop", "must be a mapping"),
        ({"auot": "stop"}, "did you mean 'auto'"),
        ({"auto": True}, "off or scale_lr or stop"),
        ({"auto": []}, "off or scale_lr or stop"),
        ({"lr_scale": 1}, "below 1"),
        ({"max_times": 0}, "at least 1"),
        ({"cooldown_steps": 1.5}, "whole number"),
        ({"listen": "no"}, "true or false"),
    ],
)
def test_a_bad_setting(block, part):
    with pytest.raises(ConfigError, match=part):
        parse_control(block)


def test_settings():
    assert parse_control(None) == ControlOptions() == parse_control({"auto": False})
    assert parse_control({"auto": "stop", "listen": False}) == ControlOptions(listen=False, auto="stop")


def test_listen_false_leaves_no_folder(train):
    folder = train(callbacks=["vram"], obs={"control": {"listen": False}}, max_steps=1)
    assert not (folder / "obs" / "control").exists()
