"""The memory estimate beside what real runs hold on the CPU, tensor by tensor."""

import json

import pytest

from llamafactory_obs.preflight.run_config import read_run_config

pytest.importorskip("llamafactory", reason='LlamaFactory is not installed: pip install "llamafactory-obs[train]"')
GIB = 1 << 30
LENGTH = 96


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Six layers that keep more than the head does: recomputing one is the highest moment with checkpointing."""
    from tiny import tiny_model
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tiny_model(tmp_path_factory.mktemp("deep"), layers=6)
    config = AutoConfig.from_pretrained(folder)
    config.intermediate_size, config.hidden_size = 384, 64
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "keys",
    [
        {"finetuning_type": "full"},
        {"finetuning_type": "lora", "disable_gradient_checkpointing": True},
        pytest.param({"finetuning_type": "lora"}, marks=pytest.mark.slow),
        pytest.param({"finetuning_type": "full", "disable_gradient_checkpointing": True}, marks=pytest.mark.slow),
        pytest.param({"finetuning_type": "full", "bf16": False}, marks=pytest.mark.slow),
        pytest.param({"finetuning_type": "full", "flash_attn": "disabled"}, marks=pytest.mark.slow),
        pytest.param({"finetuning_type": "freeze", "freeze_trainable_layers": 2}, marks=pytest.mark.slow),
    ],
    ids=lambda keys: " ".join(f"{key}={value}" for key, value in keys.items()),
)
def test_a_real_run_holds_what_was_estimated(tmp_path, deep, keys):
    from memory_run import measured_config, train_measured

    from llamafactory_obs.preflight.memory.estimate import estimate

    given = measured_config(tmp_path, deep, LENGTH, **keys)
    real = train_measured(given)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(given))
    made = estimate(read_run_config(path))
    held = {line.name: round(line.gib * GIB) for line in made.lines}
    assert (real.rows, real.length) == (2, LENGTH)
    assert held.get("weights, frozen", 0) + held["weights, trained"] == real.weights
    assert held["weights, trained"] == real.trained
    assert held["gradients"] == real.gradients
    assert held["optimizer states"] == real.states
    numbers = made.line("activations").numbers
    mask, batch = 2 * LENGTH**2, 2 * 2 * LENGTH * 8
    # alive at the end of the forward pass, but not saved by autograd where layers are checkpointed: mask and batch
    mask *= 4 if keys.get("flash_attn") == "disabled" else 1
    assert real.saved - 64 <= numbers["stored_bytes"] <= real.saved + mask + batch + 4096
    assert numbers["peak_bytes"] == pytest.approx(real.peak, rel=0.015)
