"""The gradient norm before clipping, of every step, against a dense norm computed aside."""

import math

import pytest
import torch
from transformers import TrainerCallback

from llamafactory_obs import load_record

ALL = ["grad_norm_spike", {"layer_norms": {"every": 1, "weights_every": 1}}, "label_mask", "vram"]


class DenseNorm(TrainerCallback):
    """Independent reference: one flat vector of all gradients, taken before clipping by tensor hooks."""

    def __init__(self):
        self.norms, self.logged, self.clipped = [], [], []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.grads = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                hook = lambda p, name=name: self.grads.__setitem__(name, p.grad.detach().clone())  # noqa: E731
                parameter.register_post_accumulate_grad_hook(hook)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        flat = torch.cat([g.flatten().double() for g in self.grads.values()])
        self.norms.append(flat.norm().item())
        self.clipped.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm().item()
        )

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" in logs:
            self.logged.append(float(logs["grad_norm"]))


@pytest.mark.parametrize("tuning", ["full", "lora"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_norm_of_every_step_before_clipping(train, tuning, accumulation):
    reference = DenseNorm()
    out = train(
        callbacks=ALL,
        finetuning_type=tuning,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=0.05,
        logging_steps=3,
        extra_callbacks=[reference],
    )
    record = load_record(out)
    norms = record.steps["train/grad_norm"]
    assert record.steps["step"] == [1, 2, 3, 4, 5, 6]
    assert norms == pytest.approx(reference.norms, rel=1e-5)
    assert reference.clipped == pytest.approx([0.05] * 6, rel=1e-3)  # what a callback sees after clipping
    assert [norms[2], norms[5]] == pytest.approx(reference.logged, rel=1e-6)
    assert record.steps["train/clip_coef"] == pytest.approx([0.05 / n for n in reference.norms], rel=1e-4)
    for row in record.layers.rows:  # both views are complete
        for measure in ("grad_norm", "module_grad_norm"):
            assert math.hypot(*row[measure]) == pytest.approx(norms[row["step"] - 1], rel=1e-4)


def test_no_clipping_still_has_a_norm(train):
    reference = DenseNorm()
    out = train(callbacks=["grad_norm_spike"], max_grad_norm=0, extra_callbacks=[reference])
    record = load_record(out)
    assert record.steps["train/grad_norm"] == pytest.approx(reference.norms, rel=1e-5)
    assert record.steps["train/clip_coef"] == [1.0] * 6


class Rate(TrainerCallback):
    """Sets the rate of one step behind the scheduler's back, and keeps what the optimizer used."""

    def __init__(self):
        self.used = []

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        if state.global_step == 2:
            optimizer.param_groups[0]["lr"] *= 20
        self.used.append(optimizer.param_groups[0]["lr"])


def test_the_rate_is_the_one_that_made_the_update(train):
    rate = Rate()
    out = train(callbacks=["grad_norm_spike"], lr_scheduler_type="linear", extra_callbacks=[rate])
    assert load_record(out).steps["train/lr"] == rate.used and max(rate.used) > 10 * min(rate.used)


class Weights(TrainerCallback):
    """Independent reference for weight norms and updates: full copies around each update."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.before, self.rows = {n: p.detach().clone() for n, p in model.named_parameters()}, []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        after = {n: p.detach().clone() for n, p in model.named_parameters()}
        flat = lambda d: torch.cat([t.flatten().double() for n, t in d.items() if ".layers.1." in n])  # noqa: E731
        weight = flat(self.before).norm()
        self.rows.append((weight.item(), ((flat(after) - flat(self.before)).norm() / weight).item()))
        self.before = after


def test_weight_norm_and_update_ratio(train):
    reference = Weights()
    out = train(callbacks=ALL, extra_callbacks=[reference])
    layers = load_record(out).layers
    assert list(layers.column("weight_norm", "layers.1").values()) == pytest.approx(
        [w for w, _ in reference.rows], rel=1e-5
    )
    assert list(layers.column("update_ratio", "layers.1").values()) == pytest.approx(
        [u for _, u in reference.rows], rel=1e-3
    )


def test_lora_names_keep_a_and_b_apart(train):
    layers = load_record(
        train(callbacks=ALL, finetuning_type="lora", lora_target="q_proj,down_proj", max_steps=2)
    ).layers
    assert layers.names == [f"layers.{i}.{part}" for i in range(3) for part in ("lora_A", "lora_B")]
    assert layers.modules == [f"{m}.{part}" for m in ("q_proj", "down_proj") for part in ("lora_A", "lora_B")]
