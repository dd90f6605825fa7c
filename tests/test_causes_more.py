"""Causes of what is no spike: NaN, zeros, a flat run, slower steps, growing memory; each beside a control."""

import json
import math
import random

import pytest
from log_curves import BAD, STEPS, found, lengths, log, noisy

from llamafactory_obs.diagnosis.causes import causes

NAN = float("nan")


def first(curves, finding) -> str:
    return causes(curves, finding)[0].name


def score(curves, name: str, finding) -> float:
    return next((one.score for one in causes(curves, finding) if one.name == name), 0.0)


def _dies(before: list[float] | None = None) -> list[float]:
    values = before or noisy()
    return [value if step < BAD else NAN for step, value in enumerate(values, start=1)]


def test_nan_because_no_token_had_a_label():
    tokens = [0.0 if step == BAD else 300.0 for step in range(1, STEPS + 1)]
    assert first(log(_dies(), data_supervised_tokens=tokens), found("nan")) == "all_labels_masked"
    full = [300.0] * STEPS
    assert score(log(_dies(), data_supervised_tokens=full), "all_labels_masked", found("nan")) == 0


def test_nan_after_the_loss_had_grown():
    grown = [1.5 if step < BAD - 12 else 1.5 + 0.8 * (step - BAD + 12) for step in range(1, STEPS + 1)]
    norms = [1.0] * STEPS
    curves = log(_dies(grown), train_lr=[1e-3] * STEPS, train_grad_norm=norms)
    assert first(curves, found("nan")) == "lr_too_high"
    level = log(_dies(), train_lr=[1e-3] * STEPS, train_grad_norm=norms)
    assert score(level, "lr_too_high", found("nan")) < 0.5


def test_nan_from_one_gradient_or_from_the_weights():
    curves = log(_dies())
    named = found("nan", nonfinite_gradients=["layers.3.q_proj"], gradient_count=42)
    assert first(curves, named) == "attention_or_kernel"
    every = found("nan", nonfinite_gradients=["layers.3.q_proj"] * 42, gradient_count=42)
    assert score(curves, "attention_or_kernel", every) == 0
    at_once = log([NAN] * 20)
    assert first(at_once, found("nan", step=1, nonfinite_weights=["embed_tokens"])) == "broken_weights"
    assert score(curves, "broken_weights", found("nan")) == 0


def test_a_loss_of_zero_has_three_meanings():
    dead = [value if step < BAD else 0.0 for step, value in enumerate(noisy(), start=1)]
    bad_norm = [1.0 if step < BAD else NAN for step in range(1, STEPS + 1)]
    assert first(log(dead, train_grad_norm=bad_norm), found("zero_loss")) == "nan_behind_zero"
    known = [max(0.5 * math.exp(-step / 10), 1e-5) if step < BAD else 0.0 for step in range(1, STEPS + 1)]
    good_norm = [1.0 if step < BAD else 1e-4 for step in range(1, STEPS + 1)]
    assert first(log(known, train_grad_norm=good_norm), found("zero_loss")) == "memorised"
    masked = [300.0 if step < BAD else 0.0 for step in range(1, STEPS + 1)]
    no_norm = log(dead, data_supervised_tokens=masked, train_grad_norm=[0.0] * STEPS)
    assert first(no_norm, found("zero_loss")) == "all_labels_masked"


def _flat(**columns):
    curves = log(noisy(level=2.5), **columns)
    curves.run = {"model": {"parameters": {"total": 10**9, "trainable": 10**7}}}
    return curves


def test_flat_because_nothing_can_be_learnt():
    flat = found("flat", step=STEPS)
    frozen = _flat(train_grad_norm=[0.0] * STEPS)
    frozen.run = {"model": {"parameters": {"total": 10**9, "trainable": 0}}}
    assert first(frozen, flat) == "nothing_trainable"
    usual = {"train_grad_norm": [1.0] * STEPS, "train_lr": [2e-4] * STEPS, "data_supervised_ratio": [0.4] * STEPS}
    assert first(_flat(**usual), flat) == "unknown"
    assert first(_flat(**usual | {"data_supervised_ratio": [0.0] * STEPS}), flat) == "labels"
    assert first(_flat(**usual | {"data_labels_moved": [30.0] * STEPS}), flat) == "labels"
    assert first(_flat(**usual | {"train_lr": [0.0] * STEPS}), flat) == "lr_too_small"
    assert first(_flat(**usual | {"train_lr": [1e-6] * STEPS}), flat) == "lr_too_small"
    tiny = [1e-7 if step % 10 == 0 else None for step in range(1, STEPS + 1)]
    assert first(_flat(**usual | {"train_update_ratio": tiny}), flat) == "lr_too_small"


def test_jitter_of_the_rate_or_of_the_batches():
    jitter = found("jitter", step=STEPS, since=1)
    rough = noisy(spread=0.4)
    fast = log(rough, train_lr=[0.04] * STEPS, data_supervised_tokens=[5000.0 + step for step in range(STEPS)])
    fast.run = {"model": {"parameters": {"total": 10**6, "trainable": 10**6}}}
    assert first(fast, jitter) == "lr_too_high"
    draw = random.Random(4)
    few = [float(draw.choice((20, 60, 400))) for _ in range(STEPS)]
    assert first(log(rough, train_lr=[1e-4] * STEPS, data_supervised_tokens=few), jitter) == "small_batches"
    assert first(log(rough, train_lr=[1e-4] * STEPS), jitter) == "unknown"


def _timed(slow_from: int, before: dict, after: dict, **more):
    """Steps of 1 s in the parts `before`, from a step on in the parts `after`."""
    draw = random.Random(5)
    columns: dict[str, list[float]] = {}
    for name in before:
        columns[name] = [
            (after if step >= slow_from else before)[name] * draw.uniform(0.95, 1.05) for step in range(1, STEPS + 1)
        ]
    columns["time_step_s"] = [sum(columns[name][i] for name in before) for i in range(STEPS)]
    return log(**columns, **more)


PARTS = {
    "time_data_wait_s": 0.02,
    "time_forward_s": 0.3,
    "time_backward_s": 0.6,
    "time_optimizer_s": 0.05,
    "time_checkpoint_s": 0.0,
    "time_eval_s": 0.0,
    "time_other_s": 0.01,
}


@pytest.mark.parametrize(
    "part, cause",
    [
        ("time_data_wait_s", "data_wait"),
        ("time_checkpoint_s", "checkpoint_saving"),
        ("time_eval_s", "evaluation"),
        ("time_other_s", "other_callback"),
    ],
)
def test_slower_because_of_a_part(part, cause):
    drop = found("throughput_drop", step=STEPS, since=BAD)
    assert first(_timed(BAD, PARTS, PARTS | {part: 1.5}), drop) == cause
    always = found("throughput_drop", step=STEPS, since=1)
    assert first(_timed(1, PARTS, PARTS | {part: 1.5}), always) == cause  # never faster
    assert score(_timed(BAD, PARTS, PARTS), cause, drop) == 0
    with_h2d = PARTS | {"time_h2d_s": 0.001}  # a part that stayed small says nothing against the other of its cause
    assert score(_timed(BAD, with_h2d, with_h2d | {part: 1.5}), cause, drop) == 0.9


def test_slower_because_something_writes():
    writes = [0.1 if step < BAD else 150.0 for step in range(1, STEPS + 1)]
    drop = found("throughput_drop", step=STEPS, since=BAD)
    slow = PARTS | {"time_other_s": 1.5}
    assert first(_timed(BAD, PARTS, slow, system_disk_write_mib_s=writes), drop) == "storage"
    quiet = [0.1] * STEPS
    assert first(_timed(BAD, PARTS, slow, system_disk_write_mib_s=quiet), drop) == "other_callback"
    saves = PARTS | {"time_checkpoint_s": 1.5}
    assert first(_timed(BAD, PARTS, saves, system_disk_write_mib_s=writes), drop) == "checkpoint_saving"


def test_slower_because_the_batches_are_longer_or_the_card_is_slower():
    more_work = PARTS | {"time_forward_s": 0.6, "time_backward_s": 1.2}
    drop = found("throughput_drop", step=STEPS, since=BAD)
    tokens = [4000.0 if step < BAD else 8000.0 for step in range(1, STEPS + 1)]
    assert first(_timed(BAD, PARTS, more_work, data_tokens=tokens), drop) == "longer_batches"
    level = [4000.0] * STEPS
    assert first(_timed(BAD, PARTS, more_work, data_tokens=level), drop) == "compute"
    hot = [0.0 if step < BAD else 0.9 for step in range(1, STEPS + 1)]
    assert first(_timed(BAD, PARTS, more_work, data_tokens=level, system_gpu_throttled=hot), drop) == "throttled"
    others = [0.0 if step < BAD else 2.0 for step in range(1, STEPS + 1)]
    crowded = _timed(BAD, PARTS, more_work, data_tokens=level, system_gpu_other_processes=others)
    assert first(crowded, drop) == "other_process"


def test_a_log_without_the_parts_of_a_step():
    drop = found("throughput_drop", step=STEPS, since=BAD)
    curves = log(source="trainer_log", time_per_step_s=[1.0] * STEPS)
    told = causes(curves, drop)[0]
    assert told.name == "unknown" and any("throughput" in what for what in told.missing)
    curves.settings = {"save_steps": 1}
    assert first(curves, drop) == "checkpoint_saving"


def test_memory_that_grows():
    grows = [10 + 0.05 * step for step in range(STEPS)]
    leak = log(system_allocated_gib=grows, data_max_length=lengths())
    assert first(leak, found("vram_growth", step=STEPS, since=1)) == "leak"
    longer = [300.0 + 10 * step for step in range(STEPS)]
    told = causes(log(system_allocated_gib=grows, data_max_length=longer), found("vram_growth", step=STEPS, since=1))
    assert told[0].name == "longer_batches"


def _with_samples(folder, steps: dict[int, list[tuple[str, str]]]) -> None:
    """An audit log: step -> (data set, hash) of each sample."""
    (folder / "obs").mkdir(parents=True)
    (folder / "obs" / "steps.jsonl").write_text("")
    lines = []
    for step, samples in steps.items():
        batch = [{"row": 0, "sources": [[name, 0]], "hash": hashed} for name, hashed in samples]
        lines.append(json.dumps({"step": step, "segment": 0, "rank": 0, "micro_batches": [batch]}))
    (folder / "obs" / "samples.jsonl").write_text("\n".join(lines) + "\n")


def test_rows_of_the_batch_at_other_steps(tmp_path):
    loss = noisy()
    for step in (BAD, BAD + 20):
        for row in range(step - 1, step + 2):
            loss[row] += 2.0
    steps = {step: [("orders", f"{step}-{k}") for k in range(4)] for step in range(1, STEPS + 1)}
    steps[BAD + 20] = steps[BAD]
    _with_samples(tmp_path / "again", steps)
    again = log(loss, path=tmp_path / "again")
    assert first(again, found()) == "special_batch"
    assert any("came again in step 110" in line for line in causes(again, found())[0].supports)
    for row in range(BAD + 19, BAD + 22):
        loss[row] -= 2.0
    assert score(log(loss, path=tmp_path / "again"), "special_batch", found()) < 0.5  # the second time it was harmless


def test_a_batch_of_a_rare_data_set(tmp_path):
    loss = [value + (2.0 if step in (BAD, BAD + 1) else 0.0) for step, value in enumerate(noisy(), start=1)]
    steps = {step: [("orders", f"{step}-{k}") for k in range(4)] for step in range(1, STEPS + 1)}
    steps[BAD] = [("poems", f"p{k}") for k in range(4)]
    _with_samples(tmp_path / "run", steps)
    told = next(one for one in causes(log(loss, path=tmp_path / "run"), found()) if one.name == "special_batch")
    assert any("data set poems, which is 0% of the run" in line for line in told.supports)
