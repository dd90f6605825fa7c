"""Counts of the memory estimate, against numbers published or counted by hand."""

import math

import pytest
from memory_config import QWEN3_4B, SMALL, config_only, run_yaml

from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.run_config import parsed, read_run_config

pytest.importorskip("llamafactory", reason='LlamaFactory is not installed: pip install "llamafactory-obs[train]"')


@pytest.fixture
def built(tmp_path):
    """`built(config, **overrides)`: the model of a run config on the meta device."""
    from llamafactory_obs.preflight.memory.parameters import build
    from llamafactory_obs.preflight.memory.setup import read_setup

    def make(config=SMALL, **overrides):
        given = read_run_config(run_yaml(tmp_path, config_only(tmp_path / "model", config), **overrides))
        with parsed(given) as arguments:
            return build(arguments, read_setup(given, arguments, None))

    return make


def adapter_by_hand(config: dict, rank: int, targets: str, layers: int | None = None) -> int:
    """rank x (inputs + outputs) of each target, in each layer."""
    h, m = config["hidden_size"], config["intermediate_size"]
    q, kv = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
    sides = {"q_proj": h + q, "k_proj": h + kv, "v_proj": h + kv, "o_proj": q + h}
    sides |= {"gate_proj": h + m, "up_proj": h + m, "down_proj": m + h}
    names = sides if targets == "all" else targets.split(",")
    return rank * sum(sides[name] for name in names) * (layers or config["num_hidden_layers"])


def layer_by_hand(config: dict) -> int:
    """Parameters of one Qwen3 layer: projections, MLP, two norms, a norm for queries and one for keys."""
    h, m, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    return h * q + 2 * h * kv + q * h + 3 * h * m + 2 * h + 2 * d


def test_qwen3_4b_has_the_published_number_of_parameters_and_lora_the_counted_one(built):
    found = built(QWEN3_4B)
    assert found.trainable == adapter_by_hand(QWEN3_4B, 16, "all") == 33_030_144
    assert found.total - found.trainable == 4_022_468_096
    assert len(found.quantised) == 0


@pytest.mark.parametrize("targets", ["all", "q_proj,v_proj", "down_proj"])
def test_lora_target_decides_what_is_trained(built, targets):
    found = built(lora_target=targets, lora_rank=4)
    assert found.trainable == adapter_by_hand(SMALL, 4, targets)


def test_dora_adds_one_magnitude_per_output(built):
    outputs = 256 + 64 + 64 + 256 + 768 + 768 + 256
    assert built(use_dora=True).trainable == adapter_by_hand(SMALL, 16, "all") + 7 * outputs


def test_additional_target_is_a_trained_copy_of_the_embedding(built):
    plain, more = built(), built(additional_target="embed_tokens")
    assert more.trainable - plain.trainable == 16384 * 256
    assert more.total - plain.total == 16384 * 256


@pytest.mark.parametrize(("layers", "last"), [(2, True), (-3, False)])
def test_freeze_trains_so_many_layers(built, layers, last):
    found = built(finetuning_type="freeze", freeze_trainable_layers=layers)
    assert found.trainable == abs(layers) * layer_by_hand(SMALL)
    numbers = {int(p.name.split(".")[2]) for p in found.parameters if p.trainable}
    assert numbers == set(range(7 - layers, 7) if last else range(-layers))


def test_full_training_is_fp32_unless_pure_bf16(built):
    import torch

    assert {p.dtype for p in built(finetuning_type="full").parameters} == {torch.float32}
    pure = built(finetuning_type="full", pure_bf16=True, bf16=False)
    assert {p.dtype for p in pure.parameters} == {torch.bfloat16}
    assert pure.total == pure.trainable == 7 * layer_by_hand(SMALL) + 16384 * 256 + 256


def test_upcast_layernorm_makes_the_norms_fp32_and_nothing_else(built):
    found = built(upcast_layernorm=True)
    fp32 = {p.name for p in found.parameters if not p.trainable and p.dtype.itemsize == 4}
    assert fp32 == {p.name for p in found.parameters if len(p.shape) == 1}
    assert len(fp32) == 7 * 4 + 1


def test_an_untied_head_is_counted_and_is_not_quantised(built):
    tied, untied = built(quantization_bit=4), built(SMALL | {"tie_word_embeddings": False}, quantization_bit=4)
    assert untied.total - tied.total == 16384 * 256
    assert len(tied.quantised) == len(untied.quantised) == 7 * 7
    assert not any("lm_head" in name or "embed" in name for name in untied.quantised)


@pytest.mark.parametrize("double", [True, False])
def test_four_bit_weights_hold_what_bitsandbytes_holds(built, double):
    """Values in halves of a byte, constants as in bitsandbytes' `quantize_4bit` with blocks of 64 (nested: 256)."""
    from llamafactory_obs.preflight.memory.weights import quantised_bytes

    def by_hand(values):
        blocks = math.ceil(values / 64)
        constants = blocks + 4 * math.ceil(blocks / 256) + 1024 + 4 if double else 4 * blocks
        return values // 2 + constants + 64

    from types import SimpleNamespace

    setup = SimpleNamespace(bits=4, double_quantization=double)
    found = [p for p in built(quantization_bit=4).parameters if p.quantised]
    assert len(found) == 49
    assert [quantised_bytes(p, setup) for p in found] == [by_hand(p.count) for p in found]


def test_four_bit_weights_against_bitsandbytes_itself():
    bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from types import SimpleNamespace

    import torch

    from llamafactory_obs.preflight.memory.parameters import Parameter
    from llamafactory_obs.preflight.memory.weights import quantised_bytes

    for double in (True, False):
        packed, state = bnb.functional.quantize_4bit(torch.randn(300, 70), compress_statistics=double)
        held = [packed, state.absmax, state.code]
        held += [state.state2.absmax, state.state2.code, state.offset] if double else []
        mine = Parameter("w", (300, 70), torch.bfloat16, False, True, False)
        setup = SimpleNamespace(bits=4, double_quantization=double)
        assert quantised_bytes(mine, setup) == sum(t.numel() * t.element_size() for t in held)


def test_the_vocabulary_grows_with_the_tokenizer(tmp_path, model, built):
    import json

    config = json.loads((model / "config.json").read_text())
    for file in model.iterdir():
        if file.name != "config.json" and file.suffix != ".safetensors":
            (tmp_path / "model").mkdir(exist_ok=True)
            (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    assert built(config).parameters[0].shape[0] == config["vocab_size"]
    grown = built(config, add_tokens="<new1>,<new2>", finetuning_type="full")
    assert grown.parameters[0].shape[0] == 64 * math.ceil((config["vocab_size"] + 2) / 64)


@pytest.mark.parametrize(
    ("name", "says"), [("nobody/nothing-here", "hf download nobody/nothing-here config.json"), ("empty", "config.json")]
)
def test_a_model_without_a_config_is_one_line(tmp_path, name, says):
    from llamafactory_obs.preflight.memory.estimate import estimate

    (tmp_path / "empty").mkdir()
    model = name if "/" in name else tmp_path / name
    with pytest.raises(ConfigError, match=says) as caught:
        estimate(read_run_config(run_yaml(tmp_path, model)))
    assert "\n" not in str(caught.value)
