"""Cases that people have reported, as curves: the verdict, the action, and a clean control beside each."""

import json
import math
import random

import pytest
from diagnose_curves import curves, falling, schedule

from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.logs.read import read


def named(diagnosis, name):
    return next((f for f in diagnosis.findings if f.name == name), None)


def test_healthy_run_keeps_and_says_what_it_could_not_see():
    said = judge(curves(falling(300), lr=schedule(300)))
    assert (said.verdict, said.action, said.findings) == ("healthy", "keep", [])
    assert any("no gradient norm" in line for line in said.unseen)
    assert any("no evaluation" in line for line in said.unseen)


# GRAD-7, LOSS-1: NaN behind a logged 0.0


@pytest.mark.parametrize("good", [0, 300])
def test_nan_behind_a_loss_of_zero_is_one_finding_and_never_convergence(good):
    loss = [*falling(good), 1.0778, *[0.0] * 10] if good else [1.0778, *[0.0] * 10]
    norm = [*[6.0] * good, *[math.nan] * 11]
    said = judge(curves(loss, grad_norm=norm, settings={"flash_attn": "auto", "save_steps": 100}))
    assert (said.verdict, said.action) == ("nan", "kill")
    dead = [f for f in said.findings if f.action == "kill"]
    assert len(dead) == 1 and dead[0].evidence["since"] == good + 1
    assert "0.0 is NaN too" in dead[0].text and "data type" in dead[0].text
    assert [check.split()[0] for check in dead[0].evidence["checks"]] == [
        "the",
        "learning",
        "precision",
        "labels",
        "torch.autograd.set_detect_anomaly(True)",
    ]
    if good:
        assert "checkpoint-300" in dead[0].text


def test_the_window_in_which_nan_came_in_is_not_trusted():
    said = judge(curves([10.82, 17.31, 0.0, 0.0], grad_norm=[0.3, math.nan, math.nan, math.nan], every=5))
    assert said.verdict == "nan" and said.findings[0].evidence["untrusted_loss"] == [10, 17.31]
    assert all(f.name not in ("spike", "diverged", "zero_loss") for f in said.findings)


def test_neat_packing_is_among_the_first_things_to_check():  # MASK-13
    loss, norm = [0.0] * 12, [math.nan] * 12
    packed = judge(curves(loss, grad_norm=norm, settings={"neat_packing": True}))
    assert packed.verdict == "nan" and packed.findings[0].evidence["checks"][0].startswith("neat_packing is on")
    assert packed.findings[0].suggest["neat_packing"] is False
    plain = judge(curves(loss, grad_norm=norm, settings={"neat_packing": False}))
    assert not any("neat_packing" in check for check in plain.findings[0].evidence["checks"])


# GRAD-8: steps that the fp16 scaler skips


def test_one_skipped_step_is_nothing_thirty_are_the_end():
    norms = [0.164, math.nan, 0.171, 0.158] * 8
    skipped = judge(curves(falling(32), grad_norm=norms[:32], settings={"fp16": True}))
    assert skipped.action == "keep" and skipped.verdict == "healthy"
    dead = judge(curves(falling(60), grad_norm=[0.2] * 30 + [math.nan] * 30, settings={"fp16": True}))
    assert (dead.verdict, dead.action) == ("nan", "kill")
    bf16 = judge(curves(falling(32), grad_norm=[0.2] * 20 + [math.nan] + [0.2] * 11, settings={"bf16": True}))
    assert any(f.name == "nan" and f.level == "error" for f in bf16.findings)


# LOSS-5, LOSS-6: steps at the borders of epochs


def epochs(levels, rows=100, seed=3):
    draw = random.Random(seed)
    return [a + (b - a) * i / rows + draw.gauss(0, 0.01) for a, b in levels for i in range(rows)]


LEVELS = [(1.20, 1.10), (0.80, 0.78), (0.40, 0.39)]


@pytest.mark.parametrize(("evals", "verdict"), [((1.15, 1.18, 1.31), "overfit"), ((1.15, 1.08, 1.02), "healthy")])
def test_the_evaluation_decides_what_an_epoch_staircase_means(evals, verdict):
    each = [None] * 300
    for number, value in enumerate(evals):
        each[99 + 100 * number] = value
    said = judge(curves(epochs(LEVELS), epoch=[(i + 1) / 100 for i in range(300)], eval_loss=each))
    assert said.verdict == verdict and named(said, "memorising").level == "info"
    assert named(said, "stairs") is None


def test_the_learning_rate_is_named_beside_the_staircase():  # LOSS-6
    settings = {
        "learning_rate": 3e-3,
        "finetuning_type": "lora",
        "num_train_epochs": 7.0,
        "fp16": True,
        "warmup_ratio": 0.0,
    }
    said = judge(curves(epochs(LEVELS), epoch=[(i + 1) / 100 for i in range(300)], settings=settings))
    finding = named(said, "memorising")
    assert "0.003" in finding.text and "warm-up" in finding.text and finding.suggest["learning_rate"] < 3e-3
    usual = judge(
        curves(epochs(LEVELS), epoch=[(i + 1) / 100 for i in range(300)], settings=settings | {"learning_rate": 1e-4})
    )
    assert "learning rate of" not in named(usual, "memorising").text


# LOSS-7: three results that are not the same


def noisy(values, seed=5):
    draw = random.Random(seed)
    return [value * math.exp(draw.gauss(0, 0.03)) for value in values]


FALL = [2.0 - 1.2 * min(1, i / 100) for i in range(150)]


def test_climbs_and_swings_is_diverged():
    up = [0.8 + 5.4 * i / 30 for i in range(30)] + [6.2 + 1.5 * math.sin(i) for i in range(80)]
    said = judge(curves(noisy(FALL + up), settings={"learning_rate": 1e-4, "save_steps": 50}))
    assert (said.verdict, said.action) == ("diverged", "kill")
    finding = said.findings[0]
    assert 150 <= finding.evidence["since"] <= 160 and finding.suggest == {"learning_rate": 5e-5}
    assert finding.evidence["checkpoint"] == "checkpoint-150"


def test_one_jump_that_does_not_come_back_is_a_spike_to_kill():
    low = [2.0 - 1.55 * min(1, i / 100) for i in range(150)]
    norm = [0.5] * 150 + [9.0] * 3 + [1.0] * 57
    said = judge(curves(noisy(low + [3.0] * 60), grad_norm=norm))
    assert (said.verdict, said.action) == ("spike", "kill") and said.findings[0].until is None
    assert said.findings[0].evidence["since"] == 151 and said.findings[0].suggest == {}  # the rate is not known


def test_a_spike_that_recovers_in_20_steps_keeps():
    low = [2.0 - 1.55 * min(1, i / 100) for i in range(150)]
    back = [0.45 + 2.5 * math.exp(-i / 5) for i in range(20)]
    said = judge(curves(noisy(low + back + [0.45] * 60)))
    assert (said.verdict, said.action) == ("spike", "keep")
    assert said.findings[0].evidence["since"] == 151 and 158 <= said.findings[0].until <= 172


def test_rows_are_not_steps_when_logging_steps_is_10():
    said = judge(curves(noisy(FALL + [2.4] * 14), every=10))
    assert said.action == "kill" and said.findings[0].evidence["since"] == 1510
    assert any("diluted 10-fold" in line for line in said.unseen)


# LOSS-9


def test_a_last_line_without_loss_is_neither_zero_nor_nan(tmp_path):
    rows = [
        {"current_steps": i, "total_steps": 60, "loss": v, "lr": 1e-5, "epoch": i / 60}
        for i, v in enumerate(falling(59), 1)
    ]
    rows.append({"current_steps": 60, "total_steps": 60, "epoch": 1.0})
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = judge(read(log))
    assert said.verdict == "healthy" and said.findings == []


# RES-1, RES-2, RES-8


def around(level, after, seed=7, faded=False):
    draw = random.Random(seed)
    before = [level + draw.gauss(0, 0.03) for _ in range(60)]
    gap = [after + (level - after) * (min(1, i / 15) if faded else 0) + draw.gauss(0, 0.03) for i in range(20)]
    return before + gap + [(level if faded else after) + draw.gauss(0, 0.03) for _ in range(20)]


def test_a_level_that_jumps_at_a_resume():
    said = judge(curves(around(0.95, 1.10), resume_at=60))
    assert (said.verdict, said.action) == ("resume_gap", "keep")
    finding = said.findings[0]
    assert finding.evidence["since"] == 61 and finding.evidence["standard_errors"] > 4
    assert "optimizer.pt" in finding.text


@pytest.mark.parametrize("seed", range(8))
def test_a_real_continuation_is_quiet(seed):
    said = judge(curves(around(0.95, 0.95, seed), lr=schedule(100), resume_at=60))
    assert said.verdict == "healthy" and named(said, "resume_gap") is None


def test_a_jump_that_fades_is_told_with_its_end():
    said = judge(curves(around(0.95, 1.20, faded=True), resume_at=60))
    finding = named(said, "resume_gap")
    assert finding.level == "info" and finding.until is not None and "faded" in finding.text


def test_a_rate_that_starts_anew_proves_a_warm_start():  # RES-2
    rates = [1e-3 - 7e-6 * i for i in range(60)] + [1e-3 - 7e-6 * i for i in range(40)]
    said = judge(curves(around(0.95, 0.95), lr=rates, resume_at=60, settings={"save_only_model": True}))
    finding = said.findings[0]
    assert said.verdict == "resume_gap" and finding.evidence["lr_restarted"] is True
    assert finding.evidence["lr_before"] == pytest.approx(5.87e-4) and finding.evidence["lr_after"] == 1e-3
    assert finding.suggest == {"save_only_model": False} and "save_only_model is true" in finding.text


def test_a_foreign_throughput_after_a_resume_is_not_believed(tmp_path):  # RES-8
    lines = []
    for step, loss in enumerate(falling(60), 1):
        lines.append({"current_steps": step, "total_steps": 60, "loss": loss, "lr": 1e-5, "throughput": 571.0})
    for step, loss in enumerate(falling(60)[40:], 41):  # from checkpoint-40 on, with rows that were there
        lines.append({"current_steps": step, "total_steps": 60, "loss": loss, "lr": 1e-5, "throughput": 224413.0})
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = judge(read(log))
    assert said.verdict == "healthy" and named(said, "throughput_drop") is None


# MEM-2


def memory(kind, rows=700, seed=11):
    draw, values = random.Random(seed), []
    for i in range(rows):
        base = {"leak": 36 + 0.006 * i, "plateau": 36 + min(i, 50) * 0.04, "longer": 36 + 0.8 * (i // 200)}[kind]
        values.append(base + draw.gauss(0, 0.05))
    return values


def test_memory_that_grows_is_told_with_a_forecast():
    grown = curves(falling(500), **{"system/allocated_gib": memory("leak", 500)}, max_steps=5000)
    grown.run = {"hardware": {"gpus": [{"memory_gib": 39.9}]}}
    said = judge(grown)
    assert said.verdict == "vram_growth" and 600 <= said.findings[0].evidence["limit_at_step"] <= 700
    flat = curves(falling(700), **{"system/allocated_gib": memory("plateau")}, max_steps=5000)
    assert judge(flat).verdict == "healthy"
    lengths = [500 + 200 * (i // 200) for i in range(700)]
    longer = curves(falling(700), **{"system/allocated_gib": memory("longer"), "data/max_length": lengths})
    assert judge(longer).verdict == "healthy"


def test_a_rate_scaled_by_control_is_no_anomaly():
    losses = [2 * 0.99**i + 0.5 + 0.02 * (i % 3) for i in range(200)]
    scale = [None] * 100 + [0.3] * 100
    rates = [1e-4 * (s or 1) for s in scale]
    assert judge(curves(losses, lr=rates, **{"train/lr_scale": scale})).verdict == "healthy"
    assert "lr_anomaly" in [f.name for f in judge(curves(losses, lr=rates)).findings]
