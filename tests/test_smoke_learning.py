"""Loss and gradients of a smoke run: real runs, and their numbers changed to those of sick ones."""

import json
import math
import shutil

import pytest
import smoke_folder
from smoke_folder import LORA

from llamafactory_obs.preflight.smoke.learning import check_finite, check_gradients, check_moves
from llamafactory_obs.preflight.smoke.loads import check_loads


def set_column(smoke, column: str, value) -> None:
    """`value(step)` for one column."""
    smoke.edit("steps.jsonl", lambda row: row.update({column: value(row["step"])}) if column in row else None)


def test_a_healthy_run_passes_all_three(lora_smoke):
    run = lora_smoke.evidence()
    for check in (check_finite(run), check_moves(run), check_gradients(run)):
        assert check.status == "pass", check.detail
    zero_at_first = run.record.layers.column("grad_norm", "layers.0.lora_A")
    assert zero_at_first[1] == 0 and zero_at_first[2] > 0  # B = 0 in the first step


def test_a_healthy_warm_up_passes(warm_smoke):
    run = warm_smoke.evidence()
    assert run.column("train/lr")[1] == 0
    for check in (check_finite(run), check_moves(run), check_gradients(run)):
        assert check.status == "pass", check.detail


def test_a_learning_rate_of_zero_moves_nothing(llamafactory, model, data, tmp_path):
    smoke = smoke_folder.make(model, data, tmp_path / "z", **LORA, learning_rate=0.0)
    losses = list(smoke.evidence().column("train/loss").values())
    assert max(losses) - min(losses) > 1e-3  # other batches, other losses: this alone says nothing
    check = check_moves(smoke.evidence())
    assert check.status == "fail" and "learning rate is 0" in check.detail
    smoke.edit("steps.jsonl", lambda row: row.pop("train/lr", None))
    check = check_moves(smoke.evidence())
    assert check.status == "fail" and "still zero" in check.detail
    gradients = check_gradients(smoke.evidence())
    assert gradients.status == "fail" and "layers.0.lora_A" in gradients.detail and "lora_B," not in gradients.detail


def test_full_training_that_changes_no_weight(llamafactory, model, data, tmp_path):
    smoke = smoke_folder.make(model, data, tmp_path / "f", learning_rate=1e-30)
    check = check_moves(smoke.evidence())
    assert check.status == "fail" and "to the bit" in check.detail


def test_an_adapter_still_at_zero_did_not_move(lora_smoke, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "adapter_model.safetensors"
    save_file({k: v * 0 if ".lora_B." in k else v for k, v in load_file(file).items()}, file)
    check = check_moves(copy.evidence())
    assert check.status == "fail" and "still zero" in check.detail
    assert check_loads(copy.evidence(), "cpu").status == "fail"


def test_a_constant_loss(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    set_column(copy, "train/loss", lambda step: 2.5)
    check = check_moves(copy.evidence())
    assert check.status == "fail" and check.value == 0 and "2.5 in all 10 steps" in check.detail
    assert check_finite(copy.evidence()).status == "pass"


@pytest.mark.parametrize(
    "losses, status",
    [
        ([2.0, 2.1, 1.9, 2.4, 3.0, 4.1, 5.5, 7.0, 9.1, 10.2], "fail"),
        ([0.66, 0.83, 0.56, 0.80, 0.40, 0.28, 0.36, 0.30, 0.31, 0.29], "pass"),
        ([0.3, 0.1, 0.2, 0.3, 0.9, 0.2, 0.1, 0.6, 0.7, 0.5], "pass"),  # batches differ, nothing runs away
        ([10.8, 10.9, 10.8, 10.7, 10.9, 10.8, 10.7, 10.8, 10.9, 10.7], "pass"),  # begins from nothing
        ([2.0, 2.1, 1.9, 2.0, 1.8, 1.9, 1.8, 9.0, 1.8, 1.9], "pass"),  # one spike is another gate's matter
    ],
)
def test_a_loss_that_runs_away(lora_smoke, tmp_path, losses, status):
    copy = lora_smoke.copy(tmp_path)
    set_column(copy, "train/loss", lambda step: losses[step - 1])
    check = check_moves(copy.evidence())
    assert check.status == status, check.detail
    assert status == "pass" or "learning_rate: 1.0e-04" in check.fix


def test_whether_a_parameter_changed_must_be_known(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    shutil.rmtree(copy.checkpoint())
    (copy.folder / "obs" / "layers.jsonl").unlink()
    check = check_moves(copy.evidence())
    assert check.status == "error" and "layer_norms" in check.fix


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("column", ["train/loss", "train/grad_norm"])
def test_not_a_number(lora_smoke, tmp_path, column, first):
    copy = lora_smoke.copy(tmp_path)
    set_column(copy, column, lambda step: math.nan if step >= first else 1.0 + step)
    check = check_finite(copy.evidence())
    assert check.status == "fail" and check.value == "nan" and f"since step {first}" in check.detail
    assert ("from the first step on" in check.detail) == (first == 1)
    assert ("learning_rate" in check.fix) == (first != 1)


def test_a_hidden_nan_is_a_loss_of_exactly_zero(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    set_column(copy, "train/loss", lambda step: 0.0 if step > 3 else 1.0 + step)
    set_column(copy, "train/grad_norm", lambda step: math.nan if step > 3 else 1.0)
    assert check_finite(copy.evidence()).status == "fail"
    set_column(copy, "train/grad_norm", lambda step: 1.0)
    check = check_finite(copy.evidence())
    assert check.status == "fail" and "exactly 0.0 in step 4" in check.detail


def test_a_norm_that_only_the_trainer_logged(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "trainer_state.json"
    state = json.loads(file.read_text())
    state["log_history"][6]["grad_norm"] = math.nan
    file.write_text(json.dumps(state))
    check = check_finite(copy.evidence())
    assert check.status == "fail" and "since step 7" in check.detail


def test_steps_that_fp16_skipped_are_normal(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    copy.identity("precision", "compute", value="fp16")
    set_column(copy, "train/grad_norm", lambda step: math.inf if step < 3 else 1.0)
    copy.edit("steps.jsonl", lambda row: row.update({"train/step_skipped": float(row["step"] < 3)}))
    check = check_finite(copy.evidence())
    assert check.status == "pass" and "skipped" in check.detail
    copy.edit("steps.jsonl", lambda row: row.update({"train/step_skipped": 0.0}))
    assert check_finite(copy.evidence()).status == "fail"


def test_no_loss_on_record_is_an_error(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    copy.edit("steps.jsonl", lambda row: row.pop("train/loss", None))
    assert check_finite(copy.evidence()).status == "error"
    assert check_moves(copy.evidence()).status == "error"


def test_no_trainable_parameter(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    copy.identity("model", "parameters", "trainable", value=0)
    assert check_gradients(copy.evidence()).status == "fail"
    copy.identity("model", "parameters", value=None)
    assert check_gradients(copy.evidence()).status == "error"


@pytest.mark.parametrize("value", [None, 0.0, math.nan])
def test_a_layer_without_a_gradient_is_named(lora_smoke, tmp_path, value):
    copy = lora_smoke.copy(tmp_path)
    place = lora_smoke.evidence().record.layers.names.index("layers.1.lora_B")

    def cut(row):
        if "grad_norm" in row:
            row["grad_norm"][place] = value

    copy.edit("layers.jsonl", cut)
    check = check_gradients(copy.evidence())
    assert check.status == "fail" and "layers.1.lora_B" in check.detail and "layers.0" not in check.detail


def test_gradients_without_the_layers_are_said_to_be_seen_as_a_whole_only(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    (copy.folder / "obs" / "layers.jsonl").unlink()
    check = check_gradients(copy.evidence())
    assert check.status == "warn" and "layer by layer" in check.detail
    set_column(copy, "train/grad_norm", lambda step: 0.0)
    assert check_gradients(copy.evidence()).status == "fail"
    copy.edit("steps.jsonl", lambda row: row.pop("train/grad_norm", None))
    assert check_gradients(copy.evidence()).status == "error"
