"""The memory estimate: its lines against hand counts, and which line a changed key changes."""

import json
from dataclasses import replace

import pytest
from memory_config import QWEN3_4B, SMALL, TWO_LAYERS, config_only, run_yaml

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.run_config import parsed, read_run_config

pytest.importorskip("llamafactory", reason='LlamaFactory is not installed: pip install "llamafactory-obs[train]"')
GIB = 1 << 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all: what was traced for a model is remembered by its path."""
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def made(folder):
    """`made(**overrides)`: the estimate of the small model."""
    from llamafactory_obs.preflight.memory.estimate import estimate

    def run(config=TWO_LAYERS, longest=None, **overrides):
        path = run_yaml(folder, config_only(folder / str(config["num_hidden_layers"]), config), **overrides)
        return estimate(read_run_config(path), longest_tokens=longest)

    return run


def held(estimate) -> dict[str, int]:
    """Line -> bytes, without the two lines of the reserve (one of them follows the others)."""
    return {
        line.name: round(line.gib * GIB) for line in estimate.lines if line.name not in ("CUDA context", "allocator")
    }


@pytest.mark.slow
def test_qwen3_4b_lora_by_hand(made):
    found = made(QWEN3_4B, cutoff_len=2048, per_device_train_batch_size=1)
    lines = held(found)
    assert lines["weights, frozen"] == 2 * 4_022_468_096
    assert lines["weights, trained"] == lines["gradients"] == 4 * 33_030_144
    assert lines["optimizer states"] == 2 * 4 * 33_030_144
    # fp32 log-probabilities, their gradient, and that of the fp32 logits, at once
    assert lines["logits and loss"] == pytest.approx(12 * 2048 * 151936, rel=0.001)
    # the inputs of 36 checkpointed layers in bf16, the fp32 input of the last norm, and the mask
    assert lines["activations"] == pytest.approx(36 * 2048 * 2560 * 2 + 2048 * 2560 * 4 + 2048 * 2048, rel=0.01)
    assert found.total_gib == pytest.approx(sum(line.gib for line in found.lines))
    assert found.low_gib < found.total_gib < found.high_gib
    assert {check["what"]: abs(check["off"]) < 0.03 for check in found.checked} == {
        "bytes kept for backward": True,
        "operations of a forward pass": True,
    }
    json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"cutoff_len": 512}, {"activations", "logits and loss"}),
        ({"per_device_train_batch_size": 1}, {"activations", "logits and loss"}),
        ({"lora_rank": 32}, {"weights, trained", "gradients", "optimizer states", "activations", "weight copies"}),
        ({"optim": "adamw_8bit"}, {"optimizer states"}),
        ({"optim": "sgd"}, {"optimizer states"}),
        ({"optim": "adafactor"}, {"optimizer states"}),
        ({"quantization_bit": 4}, {"weights, 4 bit", "weights, frozen"}),
        ({"quantization_bit": 8}, {"weights, 8 bit", "weights, frozen"}),
        ({"disable_gradient_checkpointing": True}, {"activations", "weight copies"}),
        ({"enable_liger_kernel": True}, {"logits and loss", "activations", "weight copies"}),  # the peak moves
        ({"gradient_accumulation_steps": 8}, set()),
        ({"learning_rate": 0.1}, set()),
    ],
)
def test_a_changed_key_changes_its_own_lines(made, change, lines):
    before, after = held(made()), held(made(**change))
    assert {name for name in before | after if before.get(name) != after.get(name)} <= lines
    if lines:
        assert before != after


def test_activations_follow_the_tokens_and_masks_and_eager_attention_their_square(made):
    def kept(n, attention):
        return held(made(cutoff_len=n, disable_gradient_checkpointing=True, flash_attn=attention))

    one, two = kept(256, "fa2"), kept(512, "fa2")
    assert two["activations"] / one["activations"] == pytest.approx(2, rel=0.005)
    assert two["logits and loss"] / one["logits and loss"] == pytest.approx(2, rel=0.01)
    masked, eager = kept(512, "auto"), kept(512, "disabled")
    # two rows: the 16-bit copy of the mask in each of two layers; keys and values repeated for 8 heads, not 2
    repeated = 2 * 512 * 2 * 2 * (256 - 64) * 2
    assert masked["activations"] - two["activations"] == pytest.approx(2 * 512**2 * 2 * 2 + repeated, rel=0.001)
    # for each layer, row and head at least the softmax of tokens x tokens is kept, in 16 bit
    assert eager["activations"] - two["activations"] > 2 * 2 * 8 * 512 * 512 * 2
    assert eager["activations"] / kept(256, "disabled")["activations"] > 2.5


def test_the_longest_row_replaces_the_cutoff_but_not_with_packing(made):
    assert held(made(longest=100, cutoff_len=1024)) == held(made(cutoff_len=104))  # padded to 8
    assert held(made(longest=5000, cutoff_len=256)) == held(made(cutoff_len=256))
    packed = made(longest=100, cutoff_len=256, packing=True)
    assert held(packed)["activations"] == held(made(cutoff_len=256))["activations"]
    assert any("packing" in note for note in packed.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"disable_gradient_checkpointing": True},
        {"finetuning_type": "full", "gradient_accumulation_steps": 1},
        {"finetuning_type": "full", "disable_gradient_checkpointing": True},
        {"quantization_bit": 4, "per_device_train_batch_size": 8},
    ],
)
def test_few_layers_continued_are_the_whole_stack(tmp_path, monkeypatch, overrides):
    from llamafactory_obs.preflight.memory import trace as module
    from llamafactory_obs.preflight.memory.parameters import build
    from llamafactory_obs.preflight.memory.setup import read_setup

    path = run_yaml(tmp_path, config_only(tmp_path / "model", SMALL | {"num_hidden_layers": 11}), **overrides)
    config = read_run_config(path)
    with parsed(config) as arguments:
        setup = read_setup(config, arguments, None)
        built = build(arguments, setup)
        short = module.trace(built, setup)
        monkeypatch.setattr(module, "_layers", lambda built: None)
        whole = module.trace(built, setup)
    assert short.per_layer is not None and whole.per_layer is None
    assert sum(short.stored.values()) == pytest.approx(sum(whole.stored.values()), rel=1e-3)
    assert short.peak_bytes == pytest.approx(whole.peak_bytes, rel=5e-3)


def test_dpo_takes_two_rows_and_full_training_a_reference_model(made):
    sft, dpo = made(), made(stage="dpo", pref_loss="sigmoid")
    assert dpo.tokens == 2 * sft.tokens
    assert held(dpo)["logits and loss"] > 2 * held(sft)["logits and loss"] * 0.9
    assert "reference model" not in held(dpo)
    full = held(made(stage="dpo", finetuning_type="full"))
    assert full["reference model"] == 2 * full["gradients"] // 4
    assert "reference model" not in held(made(stage="dpo", finetuning_type="full", pref_loss="simpo"))


def test_optimizer_states_by_hand(made):
    trained = made().trainable
    count = {"adamw_torch": 8, "adamw_torch_fused": 8, "sgd": 0, "adagrad": 4, "paged_adamw_32bit": 8, "lion_32bit": 4}
    for optim, each in count.items():
        assert held(made(optim=optim)).get("optimizer states", 0) == each * trained, optim
    full = made(finetuning_type="full")
    embedding, norms = 16384 * 256, 2 * (2 * 256 + 2 * 32) + 256
    matrices = full.trainable - embedding - norms
    small = held(made(finetuning_type="full", optim="adamw_8bit"))
    # fp32 for embeddings and for weights below 4096 values; else a byte and 4/256 for each of two states
    assert small["optimizer states"] == 8 * (embedding + norms) + 2 * (matrices + 4 * matrices // 256)
    pure = held(made(finetuning_type="full", pure_bf16=True, bf16=False))
    assert pure["optimizer states"] == 2 * 2 * full.trainable and pure["gradients"] == 2 * full.trainable


def test_the_unfused_optimizer_step_needs_its_buffers(made):
    keys = {"finetuning_type": "full", "gradient_accumulation_steps": 1, "cutoff_len": 16}
    keys["config"] = TWO_LAYERS | {"tie_word_embeddings": False}
    fused, plain = made(**keys), made(**keys, optim="adamw_torch")
    assert plain.moment == "optimizer step" != fused.moment
    moving = sum(
        held(plain).get(name, 0) for name in ("activations", "logits and loss", "weight copies", "optimizer step")
    )
    assert moving == 4 * plain.trainable  # `exp_avg_sq_sqrt` of all weights at once


def test_the_gradient_of_a_tied_head_is_held_three_times(made):
    """From head, from embedding, and their sum: seen in a real backward pass of SmolLM2-135M."""
    keys = {"finetuning_type": "full", "gradient_accumulation_steps": 1, "cutoff_len": 16, "bf16": None}
    found = made(**keys)
    assert held(found)["activations"] == pytest.approx(2 * 4 * 16384 * 256, rel=0.02)


def test_an_evaluation_can_be_the_highest_moment(made):
    off = made(val_size=0.1)
    assert off.line("evaluation") is None
    on = made(val_size=0.1, eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=64)
    assert on.moment == "evaluation" and on.line("evaluation").gib > 0
    assert (
        made(val_size=0.1, eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=1).total_gib
        == off.total_gib
    )


def test_cards_share_what_zero_and_fsdp_shard(made, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    files = {}
    for stage in (1, 2, 3):
        files[stage] = tmp_path / f"zero{stage}.json"
        files[stage].write_text(json.dumps({"zero_optimization": {"stage": stage}}))
    n = made(finetuning_type="full").trainable
    want = {1: (2 * n, 2 * n, 3 * n), 2: (2 * n, n // 2, 3 * n), 3: (n // 2, n // 2, 3 * n)}
    for stage, numbers in want.items():
        lines = held(made(finetuning_type="full", deepspeed=str(files[stage])))
        got = [lines["weights, trained"], lines["gradients"], lines["optimizer states"]]
        assert got == pytest.approx(numbers, abs=2), stage
    fsdp = held(made(finetuning_type="full", fsdp="full_shard auto_wrap"))
    assert [fsdp["weights, trained"], fsdp["gradients"], fsdp["optimizer states"]] == pytest.approx(
        [n, n, 2 * n], abs=2
    )
    ddp = held(made())
    assert ddp["gradient buckets"] == ddp["gradients"]
    files[3].write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}))
    assert "optimizer states" not in held(made(finetuning_type="full", deepspeed=str(files[3])))


def test_what_is_not_modelled_is_named(made):
    assert any("unsloth" in note for note in made(use_unsloth=True).notes)
    assert not any("not modelled" in note for note in made().notes)
    assert any("adamw_unknown" in note for note in made(optim="adamw_unknown").notes)
    with pytest.raises(ConfigError, match="ppo"):
        made(stage="ppo", reward_model="x", finetuning_type="lora")
    with pytest.raises(ConfigError, match="no readable JSON"):
        made(deepspeed="nowhere.json")
    with pytest.raises(ConfigError, match="quantization_bit"):
        made(quantization_bit=5)


def test_an_architecture_that_cannot_be_traced_is_estimated_by_formula_or_says_so(made, monkeypatch):
    from llamafactory_obs.preflight.memory import activations

    traced = made(disable_gradient_checkpointing=True)

    def broken(*words, **keys):
        raise RuntimeError("data-dependent")

    monkeypatch.setattr(activations, "_TRACED", {})
    monkeypatch.setattr(activations, "trace", broken)
    formula = made(disable_gradient_checkpointing=True)
    assert any("data-dependent" in note for note in formula.notes)
    assert held(formula)["activations"] == pytest.approx(held(traced)["activations"], rel=0.05)
    monkeypatch.setattr(activations, "shape_of", lambda built: None)
    unknown = made()
    assert any("not modelled: the activations" in note for note in unknown.notes)
    from llamafactory_obs.preflight.memory.room import TOO_LARGE, UNKNOWN, Room

    assert Room(24, "", 0, "", 1).judge(unknown) == UNKNOWN
    assert Room(0.1, "", 0, "", 0).judge(unknown) == TOO_LARGE


def test_an_evaluation_that_cannot_be_traced_is_no_silent_fit(made, monkeypatch):
    from llamafactory_obs.preflight.memory import activations
    from llamafactory_obs.preflight.memory.room import FITS, UNKNOWN, Room

    real = activations.trace

    def broken(*words, evaluation=False):
        if evaluation:
            raise RuntimeError("data-dependent")
        return real(*words)

    card = Room(24, "", 0, "", 1)
    keys = {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 10}
    assert card.judge(made(**keys, per_device_eval_batch_size=8)) == FITS
    monkeypatch.setattr(activations, "_TRACED", {})
    monkeypatch.setattr(activations, "trace", broken)
    larger = made(**keys, per_device_eval_batch_size=8)
    assert card.judge(larger) == UNKNOWN and any("evaluation cannot be traced" in note for note in larger.notes)
    # as many rows as in training need no more than training
    assert card.judge(made(**keys, per_device_eval_batch_size=2)) == FITS


def test_bytes_saved_on_the_meta_device(tmp_path):
    """The model on the meta device, eager attention, no autocast: what autograd saves, counted by its hooks."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from llamafactory_obs.preflight.memory.parameters import build
    from llamafactory_obs.preflight.memory.setup import read_setup
    from llamafactory_obs.preflight.memory.trace import trace

    folder = config_only(tmp_path / "model", TWO_LAYERS)
    keys = {"finetuning_type": "full", "flash_attn": "disabled", "bf16": None, "disable_gradient_checkpointing": True}
    config = read_run_config(run_yaml(tmp_path, folder, gradient_accumulation_steps=1, **keys))
    with parsed(config) as arguments:
        setup = read_setup(config, arguments, None)
        traced = trace(build(arguments, setup), setup)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=torch.float32, attn_implementation="eager"
        ).train()
        ids = torch.empty(2, 256, dtype=torch.long)
        mask = torch.empty(2, 1, 256, 256)
    own = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers()]}
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        model(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False)
    saved = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in kept}
    counted = sum(size for key, size in saved.items() if key not in own)
    # alive, but not saved by autograd: the batch (ids, labels) and the mask
    assert sum(traced.stored.values()) == pytest.approx(counted, rel=0.01)


def test_the_estimate_touches_neither_the_config_nor_the_default_dtype(tmp_path):
    import torch

    from llamafactory_obs.preflight.memory.estimate import estimate

    config = read_run_config(run_yaml(tmp_path, config_only(tmp_path / "model", TWO_LAYERS)))
    given = dict(config.given)
    first = estimate(config)
    assert config.given == given and torch.get_default_dtype() == torch.float32
    assert held(estimate(replace(config))) == held(first)
