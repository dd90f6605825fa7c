"""Loading a checkpoint and one forward pass; mostly in this process, which is quicker than one of its own."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import smoke_folder

from llamafactory_obs.checkpoint.base_model import skeleton
from llamafactory_obs.checkpoint.load_worker import main
from llamafactory_obs.checkpoint.loading import Loaded, try_to_load
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.preflight.smoke.loads import _judge_loaded, _judge_values, check_loads

WEIGHTS = "adapter_model.safetensors"


def load(smoke, kind: str, **base) -> Loaded:
    """The worker's answer, in this process."""
    named = asdict(replace(smoke.evidence().base, **base))
    return Loaded(**main({"folder": str(smoke.checkpoint()), "kind": kind, "base": named, "device": "cpu"}))


def rewrite(file, change) -> None:
    from safetensors.torch import load_file, save_file

    save_file({k: v.contiguous() for k, v in change(load_file(file)).items()}, file, metadata={"format": "pt"})


def test_a_real_adapter_and_a_real_model_compute(lora_smoke, full_smoke):
    for smoke, kind in ((lora_smoke, "adapter"), (full_smoke, "full")):
        loaded = load(smoke, kind)
        assert loaded.loaded, loaded.why
        assert loaded.nonfinite == loaded.missing_count == loaded.unexpected_count == 0
        assert loaded.logits == 8 * loaded.shape[-1]
        assert _judge_loaded(smoke.evidence(), loaded).status == "pass"


def test_an_adapter_of_another_model_is_refused(lora_smoke, tmp_path):
    from tiny import tiny_model

    other = tiny_model(tmp_path / "other", layers=2)
    loaded = load(lora_smoke, "adapter", name=str(other))
    assert loaded.loaded and loaded.unexpected_count == 14 and "layers.2" in loaded.unexpected[0]
    check = _judge_loaded(lora_smoke.evidence(), loaded)
    assert check.status == "fail" and "14 of its tensors have no place" in check.detail
    deeper = load(lora_smoke, "adapter", name=str(tiny_model(tmp_path / "deeper", layers=4)))
    assert deeper.missing_count == 14 and "layers.3" in deeper.missing[0]
    check = _judge_loaded(lora_smoke.evidence(), deeper)
    assert check.status == "fail" and "layers.3" in check.detail


def test_tensors_of_another_shape(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    rewrite(
        copy.checkpoint() / WEIGHTS, lambda t: {k: v[..., :-1] if "q_proj.lora_A" in k else v for k, v in t.items()}
    )
    loaded = load(copy, "adapter")
    assert not loaded.loaded and loaded.stage == "checkpoint" and "size mismatch" in loaded.why
    check = _judge_loaded(copy.evidence(), loaded)
    assert check.status == "fail" and WEIGHTS in check.detail


def test_a_model_that_lacks_a_weight(full_smoke, tmp_path):
    copy = full_smoke.copy(tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(copy.checkpoint() / "model.safetensors", lambda t: {k: v for k, v in t.items() if k != name})
    loaded = load(copy, "full")
    assert loaded.missing == [name] and loaded.missing_count == 1
    check = _judge_loaded(copy.evidence(), loaded)
    assert check.status == "fail" and name in check.detail


def test_a_weight_of_its_own_is_only_said(full_smoke, tmp_path):
    import torch

    copy = full_smoke.copy(tmp_path)
    rewrite(copy.checkpoint() / "model.safetensors", lambda t: t | {"v_head.summary.weight": torch.ones(2)})
    check = _judge_loaded(copy.evidence(), load(copy, "full"))
    assert check.status == "warn" and "v_head.summary.weight" in check.detail


def test_finite_weights_whose_logits_are_not(full_smoke, tmp_path):
    copy = full_smoke.copy(tmp_path)
    rewrite(
        copy.checkpoint() / "model.safetensors",
        lambda t: {k: v * (3e38 if k == "model.norm.weight" else 100) for k, v in t.items()},
    )
    run = copy.evidence()
    assert not run.values.nonfinite
    check = _judge_loaded(run, load(copy, "full"))
    assert check.status == "fail" and "logits are NaN" in check.detail


def test_weights_that_were_wiped_out(full_smoke, lora_smoke, tmp_path):
    full, lora = full_smoke.copy(tmp_path / "full"), lora_smoke.copy(tmp_path / "lora")
    file = full.checkpoint() / "model.safetensors"
    whole = file.read_bytes()
    half = len(whole) // 2
    file.write_bytes(whole[:half] + bytes(len(whole) - half))  # the size was set, the rest never written
    check = check_loads(full.evidence(), "cpu")
    assert check.status == "fail" and "nothing but zeros" in check.detail and file.name in check.detail
    file.write_bytes(whole)
    rewrite(file, lambda t: {k: v * 0 for k, v in t.items()})
    check = check_loads(full.evidence(), "cpu")
    assert check.status == "fail" and check.value == 1 + 7 * 3  # the embedding, 7 projections in 3 layers
    rewrite(lora.checkpoint() / WEIGHTS, lambda t: {k: v * 0 if "layers.1" in k else v for k, v in t.items()})
    check = check_loads(lora.evidence(), "cpu")
    assert check.status == "fail" and check.value == 7 and "lora_A" in check.detail


def test_a_matrix_that_is_zero_in_the_base_model_too_is_healthy(full_smoke, tmp_path):
    copy = full_smoke.copy(tmp_path / "copy")
    base = shutil.copytree(full_smoke.evidence().base.name, tmp_path / "base")

    def expand(tensors):  # as LLaMA-Pro's new blocks begin
        return {k: v * 0 if k.endswith("layers.1.mlp.down_proj.weight") else v for k, v in tensors.items()}

    rewrite(copy.checkpoint() / "model.safetensors", expand)
    assert _judge_values(copy.evidence()).value == 1
    rewrite(base / "model.safetensors", expand)
    assert _judge_values(copy.evidence(model_name_or_path=str(base))) is None


def test_an_adapter_that_names_another_base_model(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "adapter_config.json"
    held = json.loads(file.read_text())

    def judged(name):
        file.write_text(json.dumps(held | {"base_model_name_or_path": name}))
        return _judge_values(copy.evidence())

    check = judged("/models/other-7B")
    assert check.status == "fail" and "other-7B" in check.detail and check.want == copy.evidence().base.name
    assert _judge_values(copy.evidence(use_unsloth=True)) is None  # it has names of its own
    here = smoke_folder.Path(copy.evidence().base.name)
    assert judged(str(here)) is None and judged(f"hub/{here.name.upper()}") is None and judged(None) is None


def test_logits_that_are_all_one_number(full_smoke):
    loaded = load(full_smoke, "full")
    assert loaded.spread > 0
    check = _judge_loaded(full_smoke.evidence(), replace(loaded, spread=0.0))
    assert check.status == "fail" and "one number" in check.detail


def test_a_base_that_is_not_there_says_nothing_of_the_checkpoint(lora_smoke, tmp_path):
    loaded = load(lora_smoke, "adapter", name=str(tmp_path / "nowhere"))
    assert not loaded.loaded and loaded.stage == "base" and "nowhere" in loaded.why
    assert _judge_loaded(lora_smoke.evidence(), loaded).status == "error"
    with pytest.raises(ConfigError, match="nowhere"):
        skeleton(replace(lora_smoke.evidence().base, name=str(tmp_path / "nowhere")))


def test_a_quantised_base_that_cannot_be_had_here_is_said(lora_smoke):
    loaded = load(lora_smoke, "adapter", quantization={"quantization_bit": 4})
    assert loaded.loaded and "4 bit" in loaded.notes[0]
    assert "4 bit" in _judge_loaded(lora_smoke.evidence(), loaded).detail


def test_earlier_adapters_are_merged_first(lora_smoke):
    earlier = str(lora_smoke.checkpoint())
    loaded = load(lora_smoke, "adapter", adapters=(earlier,))
    assert loaded.loaded and not loaded.missing_count and not loaded.unexpected_count


@pytest.mark.slow
@pytest.mark.parametrize("which", ["lora_smoke", "full_smoke"])
def test_in_a_process_of_its_own_it_is_the_same(request, which):
    check = check_loads(request.getfixturevalue(which).evidence(), "cpu")
    assert check.status == "pass" and "logits are finite" in check.detail


def test_a_load_that_takes_too_long_is_ended(lora_smoke):
    loaded = try_to_load(lora_smoke.checkpoint(), "adapter", lora_smoke.evidence().base, "cpu", limit_s=0.2)
    assert loaded == Loaded(False, "process", "not loaded within 0 s")


def test_a_machine_without_memory_is_not_filled(lora_smoke, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.checkpoint.loading.weights_bytes", lambda name: 1 << 50)
    check = check_loads(lora_smoke.evidence(), "cpu")
    assert check.status == "error" and "GiB of memory are needed" in check.detail


def test_a_device_that_is_none(lora_smoke):
    with pytest.raises(ConfigError, match="no torch device"):
        check_loads(lora_smoke.evidence(), "toaster")
