"""`optimizer`: against dense norms, torch's own AdamW state and real schedules; planted faults."""

import hashlib
import shutil

import pytest
import torch
from transformers import TrainerCallback

from llamafactory_obs import OptimizerHealth, load_record
from llamafactory_obs.callbacks.moments import moments_of
from llamafactory_obs.record.reader import read_rows
from llamafactory_obs.record.schema import OPTIMIZER

EVERY = {"optimizer": {"every": 1}}


class Dense(TrainerCallback):
    """The reference: everything in float64 from whole tensors, looked at where the Trainer itself calls."""

    def __init__(self):
        self.rows = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.before = {n: p.detach().double().clone() for n, p in model.named_parameters() if p.requires_grad}

    def on_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
        after = {n: p.detach().double() for n, p in model.named_parameters() if p.requires_grad}
        weight = torch.cat([t.flatten() for t in self.before.values()]).norm()
        change = torch.cat([(after[n] - t).flatten() for n, t in self.before.items()]).norm()
        row = {"train/param_norm": weight.item(), "train/update_ratio": (change / weight).item()}
        states = [optimizer.state[p] for p in model.parameters() if p in optimizer.state]
        if states and "exp_avg_sq" in states[0] and "exp_avg" in states[0]:
            group = optimizer.param_groups[0]
            (beta1, beta2), eps, t = group["betas"], group["eps"], float(states[0]["step"])
            m = torch.cat([s["exp_avg"].double().flatten() for s in states])
            v = torch.cat([s["exp_avg_sq"].double().flatten() for s in states])
            root = (v / (1 - beta2**t)).sqrt()
            row["train/exp_avg_norm"] = m.norm().item()
            row["train/exp_avg_sq_tiny"] = (root < eps).double().mean().item()
            row["train/adam_step_max"] = (m.abs() / (1 - beta1**t) / (root + eps)).max().item()
        self.rows[state.global_step + 1] = row


def events(record, kind):
    return [event for event in record.events if event["kind"] == kind]


def weights(out):
    return hashlib.sha256(next(out.glob("*model.safetensors")).read_bytes()).hexdigest()


RUNS = {
    "adamw": {},
    "fused": {"optim": "adamw_torch_fused", "weight_decay": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2},
    "lora": {"finetuning_type": "lora"},
    "loraplus": {"finetuning_type": "lora", "loraplus_lr_ratio": 16.0},
    "sgd": {"optim": "sgd"},
    "adafactor": {"optim": "adafactor"},
}


@pytest.mark.parametrize("name", RUNS)
def test_numbers_are_those_of_whole_tensors_and_the_run_stays_the_same(train, name):
    dense = Dense()
    plain = train(max_steps=4, **RUNS[name])
    out = train(
        callbacks=[EVERY, {"layer_norms": {"weights_every": 2}}], extra_callbacks=[dense], max_steps=4, **RUNS[name]
    )
    assert weights(plain) == weights(out), "bit-equal with and without"
    record = load_record(out)
    for step, wanted in dense.rows.items():
        found = {key: record.steps[key][step - 1] for key in wanted}
        assert found == pytest.approx(wanted, rel=2e-5, abs=1e-12), step
    assert [e for e in record.events if e["kind"] in ("alert", "callback_off", "unavailable")] == []
    notes = [e["title"] for e in events(record, "note")]
    assert ("no moments" in notes) == (name == "sgd")
    adam = name not in ("sgd", "adafactor")
    assert ("train/adam_step_max" in record.steps) == adam
    assert ("train/moments_bad" in record.steps) == (name != "sgd")
    ratio = record.layers.column("update_ratio", record.layers.names[0])
    assert list(ratio) == [2, 4], "the copy of the weights is shared, not taken away"


def test_groups_have_rows_of_their_own(train):
    out = train(callbacks=[{"optimizer": {"every": 2}}], max_steps=4, **RUNS["loraplus"])
    rows, torn = read_rows(out / "obs" / OPTIMIZER)
    assert torn == 0 and [row["step"] for row in rows] == [2, 4]
    groups = rows[0]["groups"]
    assert {round(g["lr"] / 1e-3) for g in groups if g["parameters"]} == {1, 16}
    assert all(g["first"] and g["param_norm"] >= 0 and g["adam_step_max"] > 0 for g in groups if g["parameters"])
    record = load_record(out)
    assert sum(g["param_norm"] ** 2 for g in groups) ** 0.5 == pytest.approx(
        record.steps["train/param_norm"][1], rel=1e-6
    )
    assert sum(g["exp_avg_norm"] ** 2 for g in groups if g["parameters"]) ** 0.5 == pytest.approx(
        record.steps["train/exp_avg_norm"][1], rel=1e-6
    )
    assert record.steps["train/param_norm"][0] is None, "not measured, so not there"


def test_clip_rate_is_counted(train):
    record = load_record(train(callbacks=[{"optimizer": {"window": 3}}], max_steps=6, max_grad_norm=0.15))
    clipped = [coefficient < 1 for coefficient in record.steps["train/clip_coef"]]
    wanted = [sum(clipped[max(0, i - 2) : i + 1]) / len(clipped[max(0, i - 2) : i + 1]) for i in range(6)]
    assert record.steps["train/clip_rate"] == pytest.approx(wanted) and sum(clipped) > 0


def test_learning_rate_changes_of_a_real_schedule(train):
    schedule = {"lr_scheduler_type": "cosine", "warmup_steps": 4, "max_steps": 14}
    record = load_record(train(callbacks=["optimizer"], **schedule))
    changes = [(e["title"], e["step"]) for e in events(record, "lr_change")]
    assert changes == [("first rate", 1), ("warm-up ends", 6)], "the update after the peak of step 5 is lower"
    assert record.steps["train/lr"].index(max(record.steps["train/lr"])) + 1 == 5


def test_a_rate_set_by_somebody_else_is_an_alert(train):
    class Meddler(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            if state.global_step == 3:
                for group in optimizer.param_groups:
                    group["lr"] *= 20

    record = load_record(
        train(callbacks=["optimizer"], extra_callbacks=[Meddler()], lr_scheduler_type="cosine", max_steps=8)
    )
    alerts = [(e["title"], e["step"], e["level"]) for e in events(record, "alert")]
    assert alerts == [("rate set from outside", 4, "warn")]


class Plant(TrainerCallback):
    """Changes the optimizer's state after step 2's update."""

    def __init__(self, change):
        self.change = change

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        if state.global_step == 2:
            for moments in optimizer.state.values():
                self.change(moments)


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (lambda s: s["exp_avg_sq"].view(-1)[0].neg_().sub_(1), "broken moments"),
        (lambda s: s["exp_avg"].view(-1)[-1].fill_(float("inf")), "broken moments"),
        (lambda s: None, None),
    ],
)
def test_broken_moments_are_an_alert(train, change, title):
    record = load_record(train(callbacks=[EVERY], extra_callbacks=[Plant(change)], max_steps=4))
    alerts = [(e["title"], e["step"], e["action"]) for e in events(record, "alert")]
    assert alerts == ([(title, 3, "kill")] if title else [])


@pytest.mark.parametrize("lost", [True, False])
def test_moments_and_schedule_lost_on_resume(train, lost, tmp_path):
    options = {"callbacks": [EVERY], "lr_scheduler_type": "linear", "save_steps": 4}
    out = train(max_steps=8, output_dir=tmp_path / "run", **options)
    shutil.rmtree(out / "checkpoint-8")
    if lost:
        (out / "checkpoint-4" / "optimizer.pt").unlink()
        (out / "checkpoint-4" / "scheduler.pt").unlink()
    more = options | {"overwrite_output_dir": False, "resume_from_checkpoint": str(out / "checkpoint-4")}
    record = load_record(train(max_steps=8, output_dir=out, **more))
    alerts = {(e["title"], e["step"], e["level"]) for e in events(record, "alert")}
    assert alerts == ({("optimizer state fresh", 5, "warn"), ("unexplained jump", 5, "warn")} if lost else set())
    assert [e["title"] for e in events(record, "lr_change") if e["segment"] == 1] == (
        ["unexplained jump"] if lost else []
    )


def test_moments_of_other_optimizers():
    """8-bit ones are named as unknown; Muon's names are known; plain SGD has none."""
    weight = torch.nn.Parameter(torch.ones(6))
    group = [{"params": [weight], "betas": (0.9, 0.999), "eps": 1e-8}]
    eight = {
        weight: {"step": 3, "state1": torch.zeros(6, dtype=torch.uint8), "state2": torch.zeros(6, dtype=torch.uint8)}
    }
    assert moments_of(group, eight).quantised == 2
    muon = {weight: {"step": 3, "moment1": torch.ones(6), "moment2": torch.tensor([1.0, 0, -1, 1, 1, float("inf")])}}
    found = moments_of(group, muon)
    assert found.counts.tolist() == [[2, 1, 6]] and found.norms.tolist() == pytest.approx([6**0.5])
    assert moments_of(group, {}) is None
    momentum = moments_of(group, {weight: {"momentum_buffer": torch.full((6,), 2.0)}})
    assert momentum.norms.tolist() == pytest.approx([24**0.5]) and momentum.counts.tolist() == [[0, 0, 0]]


def test_a_huge_tensor_is_looked_at_piece_by_piece():
    weight = torch.nn.Parameter(torch.zeros(200_001))
    m, v = torch.randn(200_001), torch.rand(200_001)
    v[150_000], m[3] = 0.0, float("nan")
    found = moments_of([{"params": [weight], "betas": (0, 0), "eps": 1e-8}], {weight: {"exp_avg": m, "exp_avg_sq": v}})
    assert found.counts.tolist() == [[1, 1, 200_001]] and found.largest.isnan().all()


@pytest.mark.parametrize("options", [{"every": -1}, {"window": 0}, {"snapshot_limit_mib": -1}])
def test_bad_options(options):
    with pytest.raises(ValueError):
        OptimizerHealth(**options)


def test_fp16_scale_and_skipped_steps():
    """A GradScaler needs a GPU here; what is read of it is read from one made by hand."""
    from types import SimpleNamespace

    from llamafactory_obs.callbacks.pipeline import Row

    row, callback = Row(), OptimizerHealth()
    accelerator = SimpleNamespace(scaler=SimpleNamespace(_scale=torch.tensor(0.5)), optimizer_step_was_skipped=True)
    callback.run = SimpleNamespace(
        trainer=SimpleNamespace(accelerator=accelerator), put=row.values.__setitem__, defer=row.defer
    )
    callback._skipped = 2
    callback.step()
    assert row.values == {"train/steps_skipped": 3.0, "train/loss_scale": 0.5}
