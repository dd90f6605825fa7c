"""The smoke gate as a whole, on real runs and on damaged copies of them."""

import json
import shutil

import pytest
import smoke_folder
from smoke_folder import Smoke

from llamafactory_obs.preflight.smoke.ended import check_ended, remedies
from llamafactory_obs.preflight.smoke.gate import smoke_gate
from llamafactory_obs.preflight.smoke.loads import check_loads
from llamafactory_obs.preflight.smoke.lora import check_target
from llamafactory_obs.preflight.smoke.saved import check_complete, check_saved

WEIGHTS = "adapter_model.safetensors"
LIMITS = {"limit_gib": 24.0, "margin_gib": 1.0}


def statuses(report) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def longest(smoke: Smoke) -> int:
    return int(max(smoke.evidence().column("data/max_length").values()))


def test_a_healthy_lora_run_is_green(lora_smoke, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.preflight.smoke.loads.try_to_load", smoke_folder.load_here)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in lora_smoke.folder.rglob("*")}
    report = smoke_gate(lora_smoke.config(), lora_smoke.folder, longest_tokens=longest(lora_smoke), **LIMITS)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in lora_smoke.folder.rglob("*")} == before
    assert report.gate()["status"] == "pass", [(c.name, c.detail) for c in report.checks if c.status != "pass"]
    assert statuses(report).pop("vram_peak") == "skipped"
    assert set(statuses(report).values()) == {"pass", "skipped"}
    assert 0 < report.mask_share < 1 and report.steps == 10
    json.dumps(report.as_dict(), allow_nan=False)


def test_a_healthy_full_run_is_green(full_smoke, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.preflight.smoke.loads.try_to_load", smoke_folder.load_here)
    report = smoke_gate(full_smoke.config(), full_smoke.folder, longest_tokens=longest(full_smoke), **LIMITS)
    assert report.gate()["status"] == "pass", [(c.name, c.detail) for c in report.checks if c.status != "pass"]
    assert [name for name, status in statuses(report).items() if status == "skipped"] == ["vram_peak", "lora_target"]


@pytest.mark.parametrize("named", [True, False])
def test_a_missing_folder_fails_and_the_rest_does_not_apply(lora_smoke, tmp_path, named):
    report = smoke_gate(lora_smoke.config(), tmp_path / "gone" if named else None, longest_tokens=9, **LIMITS)
    assert report.gate()["status"] == "fail" and report.checks[0].name == "smoke_run"
    assert {check.status for check in report.checks[1:]} == {"skipped"} and len(report.checks) == 12
    assert "--run-smoke" in report.gate()["fix"]


def test_a_folder_without_a_record_fails(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    shutil.rmtree(copy.folder / "obs")
    check = smoke_gate(copy.config(), copy.folder, longest_tokens=9, **LIMITS).checks[0]
    assert check.status == "fail" and "no record" in check.detail


def test_a_run_that_died_before_its_first_step_is_named_by_its_last_words(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    shutil.rmtree(copy.folder / "obs")
    marker = {"kind": "smoke", "exit_code": 1, "last_words": ["ValueError: Target modules qkv not found"]}
    (copy.folder / "smoke_run.json").write_text(json.dumps(marker))
    shutil.rmtree(copy.checkpoint())
    report = smoke_gate(copy.config(lora_target="qkv"), copy.folder, longest_tokens=9, **LIMITS)
    assert report.checks[0].status == "fail" and "Target modules qkv" in report.checks[0].detail
    target = next(check for check in report.checks if check.name == "lora_target")
    assert target.status == "fail" and "no module qkv" in target.detail
    assert statuses(report).pop("checkpoint_loads") == "skipped"
    marker["last_words"] = ["torch.OutOfMemoryError: CUDA out of memory"]
    (copy.folder / "smoke_run.json").write_text(json.dumps(marker))
    check = smoke_gate(copy.config(), copy.folder, longest_tokens=9, **LIMITS).checks[0]
    assert check.fix.startswith("in this order: 1. per_device_train_batch_size: 1")


def test_without_its_checkpoint(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    shutil.rmtree(copy.checkpoint())
    report = smoke_gate(copy.config(), copy.folder, longest_tokens=longest(copy), **LIMITS)
    found = statuses(report)
    assert report.gate()["status"] == "fail" and found["checkpoint_saved"] == "fail"
    assert "save_steps: 10" in report.gate()["fix"]
    assert found["checkpoint_resume"] == found["checkpoint_loads"] == "skipped"
    assert found["loss_moves"] == "pass"  # the update ratios of the record tell it
    assert check_saved(lora_smoke.evidence()).status == "pass"


@pytest.mark.parametrize("which", ["lora_smoke", "full_smoke"])
def test_a_truncated_weight_file_is_named(request, tmp_path, which):
    copy = request.getfixturevalue(which).copy(tmp_path)
    file = copy.checkpoint() / (WEIGHTS if which == "lora_smoke" else "model.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    report = smoke_gate(copy.config(), copy.folder, longest_tokens=longest(copy), **LIMITS)
    broken = next(check for check in report.checks if check.name == "checkpoint_complete")
    assert broken.status == "fail" and file.name in broken.detail
    assert report.gate()["status"] == "fail" and statuses(report)["checkpoint_loads"] == "skipped"


def test_a_sharded_whole_model_is_whole_and_one_shard_less_is_not(full_smoke, tmp_path):
    from transformers import AutoModelForCausalLM

    from llamafactory_obs.checkpoint.tensors import changed_tensor

    copy = full_smoke.copy(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(full_smoke.checkpoint())
    (copy.checkpoint() / "model.safetensors").unlink()
    model.save_pretrained(copy.checkpoint(), max_shard_size="60KB")
    (copy.checkpoint() / "trainer_state.json").touch()  # written last, as in a real save
    shards = sorted(copy.checkpoint().glob("model-*.safetensors"))
    run = copy.evidence()
    assert len(shards) > 2 and check_complete(run).status == "pass"
    base = smoke_folder.Path(run.base.name)
    assert changed_tensor(copy.checkpoint(), run.proof.weights, base)
    assert len(run.values.names) == len(full_smoke.evidence().values.names)
    shards[1].unlink()
    broken = check_complete(copy.evidence())
    assert broken.status == "fail" and shards[1].name in broken.detail


@pytest.mark.parametrize("which", ["lora_smoke", "full_smoke"])
def test_weights_that_are_missing_are_not_called_shards(request, tmp_path, which):
    copy = request.getfixturevalue(which).copy(tmp_path)
    file = copy.checkpoint() / (WEIGHTS if which == "lora_smoke" else "model.safetensors")
    file.unlink()
    check = check_complete(copy.evidence())
    assert check.status == "fail" and file.name in check.detail and "shards" not in check.detail


def test_a_torn_tokenizer_is_named_and_a_missing_one_is_a_warning(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "tokenizer.json"
    file.write_bytes(file.read_bytes()[:100])
    check = check_complete(copy.evidence())
    assert check.status == "fail" and "tokenizer.json" in check.detail
    for one in copy.checkpoint().glob("tokenizer*"):
        one.unlink()
    check = check_complete(copy.evidence())
    assert check.status == "warn" and "no tokenizer" in check.detail


def rewrite(file, change) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    save_file(change(tensors), file, metadata={"format": "pt"})


def test_nan_weights_are_named_with_their_file(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)

    def poison(tensors):
        tensors[sorted(tensors)[3]][0, 0] = float("nan")
        return tensors

    rewrite(copy.checkpoint() / WEIGHTS, poison)
    check = check_loads(copy.evidence(), "cpu")
    assert check.status == "fail" and check.value == 1 and WEIGHTS in check.detail and "NaN" in check.detail


def test_an_adapter_that_changes_nothing(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    rewrite(copy.checkpoint() / WEIGHTS, lambda t: {k: v * 0 if ".lora_B." in k else v for k, v in t.items()})
    check = check_loads(copy.evidence(), "cpu")
    assert check.status == "fail" and "lora_B" in check.detail and WEIGHTS in check.detail


def test_lora_is_on_every_linear_layer_but_the_head(lora_smoke):
    check = check_target(lora_smoke.evidence())
    assert check.status == "pass" and check.value == check.want == 7 * 3  # 7 projections, 3 layers


def test_lora_on_no_module(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    rewrite(copy.checkpoint() / WEIGHTS, lambda t: {"base_model.model.model.norm.weight": next(iter(t.values()))})
    check = check_target(copy.evidence())
    assert check.status == "fail" and check.value == 0 and "attached to nothing" in check.detail


def test_lora_on_too_few_layers_and_modules(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    rewrite(copy.checkpoint() / WEIGHTS, lambda t: {k: v for k, v in t.items() if "layers.1.self_attn.q_proj" not in k})
    check = check_target(copy.evidence())
    assert check.status == "fail" and "q_proj in 1 of 3 layers" in check.detail
    more = check_target(lora_smoke.evidence(lora_target="q_proj,v_proj"))
    assert more.status == "fail" and "up_proj" in more.detail


def test_a_target_that_the_model_does_not_have_is_named_even_without_a_checkpoint(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    shutil.rmtree(copy.checkpoint())
    check = check_target(copy.evidence(lora_target="q_proj,c_attn"))
    assert check.status == "fail" and "c_attn" in check.detail and "q_proj" not in check.detail


def test_out_of_memory_names_the_cures_in_their_order(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    smoke_folder.oom(copy)
    check = check_ended(copy.evidence())
    assert check.status == "fail" and "OOM" in check.detail
    assert (
        "4 x 2048" in check.detail and "22.75 GiB" in check.detail and "VLLM::EngineCore 4242 7.00 GiB" in check.detail
    )
    order = ["per_device_train_batch_size: 1", "gradient_accumulation_steps: 16", "cutoff_len: 256", "QLoRA", "vLLM"]
    places = [check.fix.index(word) for word in order]
    assert places == sorted(places)
    assert check_ended(lora_smoke.evidence()).status == "pass"


def test_cures_that_the_config_has_already_are_left_out(lora_smoke):
    found = remedies(lora_smoke.config(per_device_train_batch_size=1, quantization_bit=4, cutoff_len=4096))
    assert found[0].startswith("cutoff_len: 2048") and not any("QLoRA" in one for one in found)
    found = remedies(
        lora_smoke.config(
            finetuning_type="full",
            lora_target=None,
            lora_rank=None,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
            disable_gradient_checkpointing=True,
        )
    )
    assert "gradient_accumulation_steps: 32 (the same total batch)" in found[0]
    assert any("disable_gradient_checkpointing: false" in one for one in found)
    assert any("finetuning_type: lora" in one for one in found) and found[-1].startswith("vLLM last")


@pytest.mark.parametrize("kind", ["crash", "interrupted"])
def test_an_exception_is_named(lora_smoke, tmp_path, kind):
    copy = lora_smoke.copy(tmp_path)
    copy.event(kind=kind, text="RuntimeError: boom", evidence={"traceback": ["model.py:7 forward"]})
    check = check_ended(copy.evidence())
    assert check.status == "fail" and kind in check.detail and "boom" in check.detail and "model.py:7" in check.detail


def test_an_older_crash_in_the_same_folder_does_not_count(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    copy.edit("events.jsonl", lambda row: row.update(segment=1))
    copy.event(kind="crash", text="RuntimeError: boom", evidence={})
    assert check_ended(copy.evidence()).status == "pass"


def without(copy: Smoke, name: str, drop) -> None:
    """Take the lines out of one file of the record for which `drop(row)` is true."""
    file = copy.folder / "obs" / name
    file.write_bytes(b"".join(line for line in file.read_bytes().splitlines(True) if not drop(json.loads(line))))


def test_a_run_that_was_killed_after_its_last_step(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    without(copy, "events.jsonl", lambda row: row["kind"] == "end")
    check = check_ended(copy.evidence())
    assert check.status == "fail" and "no end" in check.detail and "killed" in check.detail
    (copy.folder / "obs" / "events.jsonl").unlink()
    check = check_ended(copy.evidence())
    assert check.status == "error" and "events.jsonl" in check.detail
    longer = copy.evidence()
    longer.record.events.append({"kind": "memory_peak", "segment": 0})
    longer.last_step = 11  # a long run that goes on
    assert check_ended(longer).status == "pass"


def test_a_step_that_is_not_on_record_is_a_warning(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    without(copy, "steps.jsonl", lambda row: row["step"] == 5)
    check = check_ended(copy.evidence())
    assert check.status == "warn" and "step 5" in check.detail


def test_a_torn_record_is_not_blamed_on_the_data(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.folder / "obs" / "steps.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    check = check_ended(copy.evidence())
    assert check.status == "fail" and check.value == 9 and "torn" in check.detail


def test_fewer_steps_than_asked_for(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.folder / "obs" / "steps.jsonl"
    file.write_bytes(b"".join(line for line in file.read_bytes().splitlines(True) if json.loads(line)["step"] < 7))
    check = check_ended(copy.evidence())
    assert check.status == "fail" and (check.value, check.want) == (6, 10)
