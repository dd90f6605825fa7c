"""What a resume needs of a checkpoint: real ones, and copies with one part missing or broken."""

import os
import shutil

import pytest

from llamafactory_obs.checkpoint.part import Expected
from llamafactory_obs.checkpoint.resume_state import layout_of, resume_parts
from llamafactory_obs.preflight.smoke.loads import check_loads
from llamafactory_obs.preflight.smoke.saved import check_resume


def parts_of(smoke, **expected) -> dict[str, tuple[str, str]]:
    """Name -> (state, why) of each part."""
    return {part.name: (part.state, part.why) for part in resume_parts(smoke.checkpoint(), Expected(10, **expected))}


@pytest.mark.parametrize("which", ["lora_smoke", "full_smoke"])
def test_a_real_checkpoint_resumes_exactly(request, which):
    run = request.getfixturevalue(which).evidence()
    check = check_resume(run)
    assert check.status == "pass" and check.value == "resumes exactly", check.detail
    trainable = run.identity("model", "parameters", "trainable")
    found = parts_of(request.getfixturevalue(which), trainable=trainable)
    assert set(found) == {"optimizer", "scheduler", "rng", "trainer_state", "training_args"}
    assert {state for state, _ in found.values()} == {"good"}


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_part_that_is_missing_fails_by_name(lora_smoke, tmp_path, name):
    copy = lora_smoke.copy(tmp_path)
    (copy.checkpoint() / name).unlink()
    check = check_resume(copy.evidence())
    assert check.status == "fail" and f"{name} is missing" in check.detail


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"])
@pytest.mark.parametrize("how", ["cut", "empty", "noise"])
def test_a_part_that_cannot_be_read_fails_by_name(lora_smoke, tmp_path, name, how):
    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / name
    whole = file.read_bytes()
    file.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "noise": os.urandom(2000)}[how])
    check = check_resume(copy.evidence())
    assert check.status == "fail" and name in check.detail, check.detail


def test_save_only_model_is_a_warm_start(warm_smoke):
    check = check_resume(warm_smoke.evidence())
    assert check.status == "fail" and check.value == "warm start only" and check.fix == "save_only_model: false"
    assert "optimizer.pt" in check.detail
    assert check_resume(warm_smoke.evidence(save_only_model=None)).value == "warm start only"  # by the files alone


def test_no_rng_is_a_warning(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    (copy.checkpoint() / "rng_state.pth").rename(copy.checkpoint() / "rng_state_0.pth")  # of another world size
    check = check_resume(copy.evidence())
    assert check.status == "warn" and "rng_state.pth is missing" in check.detail and "bit-exact" in check.detail


def test_each_rank_has_its_rng(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    for rank in range(2):
        shutil.copy(copy.checkpoint() / "rng_state.pth", copy.checkpoint() / f"rng_state_{rank}.pth")
    parts = [part for part in resume_parts(copy.checkpoint(), Expected(10, ranks=3)) if part.name == "rng"]
    assert [(part.file, part.state) for part in parts] == [
        ("rng_state_0.pth", "good"),
        ("rng_state_1.pth", "good"),
        ("rng_state_2.pth", "missing"),
    ]


def test_fp16_needs_its_scaler(lora_smoke, tmp_path):
    import torch

    copy = lora_smoke.copy(tmp_path)
    copy.identity("precision", "compute", value="fp16")
    check = check_resume(copy.evidence())
    assert check.status == "fail" and "scaler.pt is missing" in check.detail
    torch.save({"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 3}, copy.checkpoint() / "scaler.pt")
    assert check_resume(copy.evidence()).status == "pass"
    torch.save({"scale": float("inf")}, copy.checkpoint() / "scaler.pt")
    assert "scale is inf" in check_resume(copy.evidence()).detail


def test_the_optimizer_is_looked_into(lora_smoke, tmp_path):
    import torch

    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "optimizer.pt"
    whole = torch.load(file, weights_only=True)

    def judged(change, **expected) -> tuple[str, str]:
        changed = torch.load(lora_smoke.checkpoint() / "optimizer.pt", weights_only=True)
        change(changed)
        torch.save(changed, file)
        return parts_of(copy, **expected)["optimizer"]

    assert judged(lambda o: None)[0] == "good"
    assert judged(lambda o: o["state"].clear())[0] == "broken"
    state, why = judged(lambda o: o["state"][2]["exp_avg"].fill_(float("nan")))
    assert state == "broken" and "2.exp_avg is not finite" in why
    assert judged(lambda o: o["state"].pop(0))[0] == "doubtful"
    state, why = judged(lambda o: [one["step"].fill_(4) for one in o["state"].values()])
    assert state == "stale" and "4 steps" in why
    assert judged(lambda o: [one["step"].fill_(4) for one in o["state"].values()], own_steps=True)[0] == "good"
    assert judged(lambda o: (o["state"].clear(), o["param_groups"].clear()))[0] == "broken"
    assert judged(lambda o: o["param_groups"].append(1))[0] == "broken"
    state, why = judged(
        lambda o: [one[key].zero_() for one in o["state"].values() for key in ("exp_avg", "exp_avg_sq")]
    )
    assert state == "broken" and "nothing but zeros" in why
    held = sum(one["exp_avg"].numel() for one in whole["state"].values())
    assert judged(lambda o: None, trainable=held)[0] == "good"
    state, why = judged(lambda o: None, trainable=held + 1)
    assert state == "broken" and str(held) in why
    assert judged(lambda o: o.pop("param_groups"))[0] == "broken"


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_part_of_another_step_fails_by_name(lora_smoke, tmp_path, name):
    import torch

    copy = lora_smoke.copy(tmp_path)
    held = torch.load(copy.checkpoint() / name, weights_only=True)
    for one in held.get("state", {}).values():
        one["step"].fill_(5)
    if name == "scheduler.pt":
        held["last_epoch"] = 5
    torch.save(held, copy.checkpoint() / name)
    check = check_resume(copy.evidence())
    assert check.status == "fail" and name in check.detail and "5" in check.detail and "10" in check.detail


def test_the_scheduler_is_looked_into(lora_smoke, tmp_path):
    import torch

    copy = lora_smoke.copy(tmp_path)

    def judged(held) -> tuple[str, str]:
        torch.save(held, copy.checkpoint() / "scheduler.pt")
        return parts_of(copy)["scheduler"]

    weight = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    steps = torch.optim.lr_scheduler.LambdaLR(weight, lambda step: 1.0)
    by_metric = torch.optim.lr_scheduler.ReduceLROnPlateau(weight)
    by_metric.step(1.0)  # one evaluation in ten steps
    for _ in range(10):
        weight.step()
        steps.step()
    assert judged(steps.state_dict()) == ("good", "") and judged(by_metric.state_dict()) == ("good", "")
    assert judged({"x": 1})[0] == judged([1])[0] == "broken"


class Evil:
    """What a pickle may carry."""

    def __reduce__(self):
        return (os.system, ("touch evil",))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"])
def test_nothing_is_unpickled(lora_smoke, tmp_path, monkeypatch, name):
    import torch

    monkeypatch.chdir(tmp_path)
    copy = lora_smoke.copy(tmp_path / "copy")
    torch.save({"state": Evil()}, copy.checkpoint() / name)
    check = check_resume(copy.evidence())
    assert not (tmp_path / "evil").exists()
    assert (check.status == "fail") == (name != "training_args.bin")


def _optimizers():
    from llamafactory.third_party.muon import Muon
    from torch import nn, optim
    from transformers import Adafactor

    def muon(model):
        return Muon(muon_params=[model[1].weight], adamw_params=[model[0].weight, model[1].bias])

    return {
        "adamw": lambda model: optim.AdamW(model.parameters()),
        "muon": muon,
        "sgd": lambda model: optim.SGD(model.parameters(), lr=0.1),
        "sgd_momentum": lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "adafactor": lambda model: Adafactor(model.parameters(), lr=0.1, relative_step=False),
        "rmsprop": lambda model: optim.RMSprop(model.parameters()),
    }, nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))


@pytest.mark.parametrize("which", ["adamw", "muon", "sgd", "sgd_momentum", "adafactor", "rmsprop"])
def test_the_state_of_any_healthy_optimizer_is_good(lora_smoke, tmp_path, which):
    import torch

    copy = lora_smoke.copy(tmp_path)
    made, model = _optimizers()
    optimizer = made[which](model)
    for _ in range(10):
        model(torch.arange(7)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(optimizer.state_dict(), copy.checkpoint() / "optimizer.pt")
    trainable = sum(one.numel() for one in model.parameters())
    assert parts_of(copy, trainable=trainable)["optimizer"] == ("good", "")
    if which in ("adamw", "muon", "sgd_momentum"):
        state, why = parts_of(copy, trainable=trainable + 1)["optimizer"]
        assert state == "broken" and f"for {trainable} parameters" in why


def test_another_step_is_another_checkpoint(lora_smoke, tmp_path):
    copy = lora_smoke.copy(tmp_path)
    file = copy.checkpoint() / "trainer_state.json"
    file.write_text(file.read_text().replace('"global_step": 10', '"global_step": 8'))
    check = check_resume(copy.evidence())
    assert check.status == "fail" and "step 8, not 10" in check.detail


def test_deepspeed_keeps_its_own_folder(lora_smoke, tmp_path):
    import torch

    copy = lora_smoke.copy(tmp_path)
    folder = copy.checkpoint()
    (folder / "optimizer.pt").unlink()
    (folder / "scheduler.pt").unlink()
    place = folder / "global_step10"
    place.mkdir()
    assert layout_of(folder) == "deepspeed" and parts_of(copy)["optimizer"][0] == "missing"
    (folder / "latest").write_text("global_step10")
    for rank in range(2):
        torch.save({}, place / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    assert parts_of(copy, ranks=2)["optimizer"][0] == "broken"
    torch.save({}, place / "mp_rank_00_model_states.pt")
    found = parts_of(copy, ranks=2)
    assert found["optimizer"][0] == "good" and "scheduler" not in found
    state, why = parts_of(copy, ranks=4)["optimizer"]
    assert state == "broken" and "2 of 4 ranks" in why
    (place / "mp_rank_00_model_states.pt").write_bytes(b"half")
    assert "mp_rank_00_model_states.pt" in parts_of(copy, ranks=2)["optimizer"][1]


def test_fsdp_keeps_its_shards_in_folders(lora_smoke, tmp_path):
    import torch
    from torch.distributed import checkpoint as distributed

    copy = lora_smoke.copy(tmp_path)
    folder = copy.checkpoint()
    (folder / "optimizer.pt").rename(folder / "optimizer.bin")  # FULL_STATE_DICT
    assert parts_of(copy)["optimizer"] == ("good", "")
    (folder / "optimizer.bin").unlink()
    (folder / "pytorch_model_fsdp_0").mkdir()
    place = folder / "optimizer_0"
    state = {"optimizer": {"exp_avg": torch.ones(1000), "step": torch.tensor(3.0)}}
    distributed.save(state, storage_writer=distributed.FileSystemWriter(place), no_dist=True)
    assert layout_of(folder) == "fsdp" and parts_of(copy)["optimizer"] == ("good", "")
    assert "1 of 2 ranks" in parts_of(copy, ranks=2)["optimizer"][1]
    shard, table = place / "__0_0.distcp", place / ".metadata"
    whole, names = shard.read_bytes(), table.read_bytes()
    shard.write_bytes(whole[:-10])
    state, why = parts_of(copy)["optimizer"]
    assert state == "broken" and "__0_0.distcp" in why and str(len(whole)) in why
    shard.unlink()
    assert parts_of(copy)["optimizer"] == ("broken", "optimizer_0/__0_0.distcp is missing")
    shard.write_bytes(whole)
    table.write_bytes(names[: len(names) // 2])
    assert "cut off" in parts_of(copy)["optimizer"][1]
    table.unlink()
    assert ".metadata" in parts_of(copy)["optimizer"][1]


def test_a_checkpoint_without_rng_or_optimizer_still_loads(lora_smoke, tmp_path, monkeypatch):
    from llamafactory_obs.checkpoint.loading import Loaded

    copy = lora_smoke.copy(tmp_path)
    (copy.checkpoint() / "optimizer.pt").unlink()
    asked = []

    def load(*words):
        asked.append(words)
        return Loaded(True, logits=8, device="cpu")

    monkeypatch.setattr("llamafactory_obs.preflight.smoke.loads.try_to_load", load)
    assert check_loads(copy.evidence(), "cpu").status == "pass"
    assert asked[0][:2] == (copy.checkpoint(), "adapter")
