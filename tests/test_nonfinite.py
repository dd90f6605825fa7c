"""NaN and infinity: seen at once, the first culprit named, the logged loss not believed (GRAD-4, GRAD-7, LOSS-1)."""

import math

import pytest
import torch
from transformers import TrainerCallback

from llamafactory_obs import load_record

BAD_STEP = 4


class Poison(TrainerCallback):
    """At step 4 makes one gradient NaN or infinite, or fills one weight with NaN."""

    def __init__(self, what: str, parameter: str):
        self.what, self.parameter = what, parameter

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        parameter = dict(model.named_parameters())[self.parameter]
        if self.what != "weight":
            parameter.register_hook(
                lambda grad: torch.full_like(grad, float(self.what)) if state.global_step == BAD_STEP - 1 else grad
            )

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if self.what == "weight" and state.global_step == BAD_STEP - 1:
            with torch.no_grad():
                dict(model.named_parameters())[self.parameter].fill_(math.nan)


NAME = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.default.weight"


@pytest.mark.parametrize("what", ["nan", "inf", "weight"])
@pytest.mark.parametrize("max_grad_norm", [1.0, 0])
def test_first_culprit_is_named(train, what, max_grad_norm):
    out = train(
        callbacks=["grad_norm_spike"],
        finetuning_type="lora",
        lora_target="q_proj,v_proj",
        max_steps=6,
        max_grad_norm=max_grad_norm,
        extra_callbacks=[Poison(what, NAME)],
    )
    record = load_record(out)
    alerts = [e for e in record.events if e["kind"] == "alert" and e["level"] == "error"]
    assert len(alerts) == 1, "one alarm, not one a step"
    assert alerts[0]["step"] == BAD_STEP and alerts[0]["action"] == "kill"
    key = "nonfinite_weights" if what == "weight" else "nonfinite_gradients"
    assert alerts[0]["evidence"][key] == [NAME]
    assert NAME in alerts[0]["text"]
    assert not math.isfinite(record.steps["train/grad_norm"][BAD_STEP - 1])
    untrusted = [e["evidence"]["nonfinite_steps"][0] for e in record.events if e["kind"] == "untrusted_loss"]
    assert untrusted == [BAD_STEP + (what != "weight")], "the loss is bad from the next step on, unless a weight was"


def test_logged_loss_behind_the_filter_is_not_believed(train):
    out = train(
        callbacks=["grad_norm_spike"],
        finetuning_type="lora",
        logging_steps=5,
        max_steps=10,
        save_steps=2,
        extra_callbacks=[Poison("weight", NAME)],
    )
    record = load_record(out)
    assert [math.isnan(x) for x in record.steps["train/loss"]] == [False] * 3 + [True] * 7
    untrusted = [e for e in record.events if e["kind"] == "untrusted_loss"]
    assert len(untrusted) == 1 and untrusted[0]["step"] == 5
    assert untrusted[0]["evidence"]["nonfinite_steps"] == [4, 5]
    alarm = next(e for e in record.events if e["kind"] == "alert")
    assert alarm["evidence"]["last_good_checkpoint"].endswith("checkpoint-2")


def test_stop_saves_first_but_never_a_poisoned_checkpoint(train):
    stop = [{"grad_norm_spike": {"action": "stop"}}]
    out = train(callbacks=stop, finetuning_type="lora", extra_callbacks=[Poison("nan", NAME)])
    record = load_record(out)
    assert record.steps["step"] == [1, 2, 3, 4]
    assert not list(out.glob("checkpoint-*"))


def test_neat_packing_is_among_the_suspects(train):
    out = train(
        callbacks=["grad_norm_spike"],
        packing=True,
        neat_packing=True,
        cutoff_len=64,
        max_steps=6,
        extra_callbacks=[Poison("weight", "model.layers.1.self_attn.q_proj.weight")],
    )
    alarm = next(e for e in load_record(out).events if e["kind"] == "alert" and e["level"] == "error")
    assert "neat_packing" in alarm["evidence"]["checks"][0] and "neat_packing" in alarm["text"]


class Surge(TrainerCallback):
    """Multiplies one step's gradients a thousandfold."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        for parameter in model.parameters():
            parameter.register_hook(lambda grad: grad * 1000 if state.global_step == 15 else grad)


@pytest.mark.parametrize(("action", "steps", "saved"), [("warn", 20, []), ("save", 20, [16]), ("stop", 16, [16])])
def test_spike_alarm_acts(train, action, steps, saved):
    out = train(
        callbacks=[{"grad_norm_spike": {"action": action}}],
        max_steps=20,
        logging_steps=10,
        save_steps=1000,
        extra_callbacks=[Surge()],
    )
    record = load_record(out)
    alarms = [e for e in record.events if e["title"] == "spike"]
    assert [(e["step"], e["level"]) for e in alarms] == [(16, "error")]
    assert record.steps["step"][-1] == steps
    kept = sorted(int(p.name.split("-")[1]) for p in out.glob("checkpoint-*"))
    assert [n for n in kept if n != 20] == saved  # the Trainer itself saves at the end
