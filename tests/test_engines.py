"""Engines that keep their gradients to themselves (GRAD-2, GRAD-11): said in words, never as zeros."""

from types import MappingProxyType

import torch

from llamafactory_obs import LayerNorms
from llamafactory_obs.callbacks.context import RunContext
from llamafactory_obs.callbacks.layer_names import layer_of, layers_of, module_of
from llamafactory_obs.callbacks.pipeline import Row
from llamafactory_obs.callbacks.taps import Gradients, Taps, gradients_of


class Accelerator:
    """DeepSpeed's way: the engine clips by itself and hands out one number."""

    scaler = None

    def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
        return 0.25


class Trainer:
    optimizer = None
    model = torch.nn.Linear(2, 2)
    is_deepspeed_enabled = True
    accelerator = Accelerator()

    class args:
        class hf_deepspeed_config:
            config = MappingProxyType({"zero_optimization": {"stage": 3}})

    def training_step(self, model, inputs):
        return torch.tensor(1.0)

    def evaluate(self):
        pass


class Run:
    step, trainer, phases = 1, Trainer(), None

    def __init__(self):
        self.seen, self.events, self.rows, self.open_row = [], [], [], Row(1)

    def gradients(self, gradients):
        self.seen.append(gradients)

    def event(self, kind, name, title, text, **more):
        self.events.append(text)

    def append(self, file, row):
        self.rows.append(row)


def test_deepspeed_gives_the_global_norm_and_says_what_cannot_be_seen():
    run = Run()
    taps = Taps(run.trainer, run)
    taps.install()
    assert run.trainer.accelerator.clip_grad_norm_([], 1.0) == 0.25
    taps.remove()
    assert "clip_grad_norm_" not in vars(run.trainer.accelerator)
    (gradients,) = run.seen
    assert gradients.total == 0.25 and gradients.norms is None
    callback = LayerNorms()
    callback.run, callback.context = run, RunContext()
    callback.begin()
    for _ in range(3):
        callback.gradients(gradients)
        callback.updated()
        callback.row(run.open_row)
    assert [set(row) for row in run.rows] == [{"step", "names", "modules"}], "no zero rows"
    assert len(run.events) == 1 and "DeepSpeed (ZeRO-3)" in run.events[0]


def test_cleared_gradients_are_missing_not_zero():
    model = torch.nn.Linear(2, 2)
    assert gradients_of(model) is None
    model(torch.ones(1, 2)).sum().backward()
    assert gradients_of(model).norms.shape == (2,)
    assert isinstance(gradients_of(model), Gradients)


def test_names():
    names = {
        "base_model.model.model.layers.11.self_attn.q_proj.lora_A.default.weight": (
            "layers.11.lora_A",
            "q_proj.lora_A",
        ),
        "model.layers.0.mlp.up_proj.weight": ("layers.0", "up_proj"),
        "model.layers.0.self_attn.q_proj.bias": ("layers.0", "q_proj"),
        "model.layers.0.mlp.experts.7.down_proj.weight": ("layers.0", "down_proj"),
        "transformer.h.3.attn.c_attn.weight": ("h.3", "c_attn"),
        "model.layers.2._fsdp_wrapped_module.mlp.gate_proj.weight": ("layers.2", "gate_proj"),
        "_orig_mod.model.embed_tokens.weight": ("embed_tokens", "embed_tokens"),
        "base_model.model.model.embed_tokens.lora_embedding_A.default": ("embed_tokens.lora_embedding_A",) * 2,
        "base_model.model.model.embed_tokens.modules_to_save.default.weight": ("embed_tokens", "embed_tokens"),
        "model.norm.weight": ("norm", "norm"),
        "lm_head.weight": ("lm_head", "lm_head"),
        "v_head.summary.weight": ("summary", "summary"),
    }
    assert {name: (layer_of(name), module_of(name)) for name in names} == names


def test_two_towers_are_not_merged():
    names = ["vision_tower.encoder.layers.0.fc.weight", "language_model.model.layers.0.fc.weight", "lm_head.weight"]
    towers = ["vision_tower.encoder.layers.0", "language_model.model.layers.0", "lm_head"]
    assert layers_of(names) == towers
    assert layers_of(names[1:]) == ["layers.0", "lm_head"]
    assert layer_of("my_module.layers.0.q.weight") == "layers.0"


class Experts(torch.nn.Module):
    """Two experts of which each step uses one: the gradients are others every time, their number is not."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])


def test_groups_without_a_gradient_are_null_and_names_never_shift():
    run, model = Run(), Experts()
    run.trainer = type("Trainer", (), {"model": model})
    run.defer = lambda tensors, finish: run.open_row.defer(tensors, finish)
    callback = LayerNorms(weights_every=0)
    callback.run, callback.context = run, RunContext()
    callback.begin()
    for step, used in ((1, 0), (2, 1), (3, 0)):
        run.step, run.open_row = step, Row(step)
        model.zero_grad()
        model.layers[used](torch.ones(1, 2)).sum().backward()
        callback.gradients(gradients_of(model))
        callback.row(run.open_row)
    header, *rows = run.rows
    assert header["names"] == ["layers.0", "layers.1"]
    assert [[norm is not None for norm in row["grad_norm"]] for row in rows] == [
        [True, False],
        [False, True],
        [True, False],
    ]
    assert [row["grad_norm"] for row in rows] == [row["module_grad_norm"] for row in rows]
