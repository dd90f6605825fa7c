"""Causes of a spike, from logs made by hand; each candidate beside a log in which it is not the cause."""

import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from log_curves import BAD, STEPS, cosine, event, found, lengths, log, noisy, up

from llamafactory_obs.diagnosis.causes import causes
from llamafactory_obs.diagnosis.causes.evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from llamafactory_obs.diagnosis.causes.ordinary import Ordinary
from llamafactory_obs.logs.curves import Break


def score(curves, name: str, finding=None) -> float:
    return next((one.score for one in causes(curves, finding or found()) if one.name == name), 0.0)


def first(curves, finding=None) -> str:
    return causes(curves, finding or found())[0].name


def test_one_sentence_of_a_grade_outweighs_two_of_the_grade_below():
    grades = [WEAK, FAIR, STRONG, DECISIVE]
    for low, high in pairwise(grades):
        two, one = Case("two"), Case("one")
        two.supports(low, "a")
        two.supports(low, "b")
        one.supports(high, "c")
        assert one.score == pytest.approx(high, abs=1e-3)
        assert two.score == pytest.approx(1 - (1 - low) ** 2, abs=1e-3) and two.score < one.score
    one.against(0.5, "no")
    assert one.score == pytest.approx(DECISIVE / 2, abs=1e-3)


def test_the_ordinary_is_that_of_the_statistics_module():
    values = [random.Random(3).gauss(10, 2) for _ in range(1)] + [10 + 3 * random.Random(i).random() for i in range(40)]
    past = Ordinary.of(values)
    centre = statistics.median(values)
    mad = statistics.median(abs(value - centre) for value in values)
    assert past.median == centre and past.z(20.0) == pytest.approx((20 - centre) / (1.4826 * mad))
    assert Ordinary.of(values[:11]) is None
    flat = Ordinary.of([5.0] * 20)
    assert flat.z(6.0) == pytest.approx(10.0) and flat.weight(6.0) == STRONG and flat.weight(6.0, high=False) == 0
    seen = Ordinary.of([1.0] * 30 + [100.0])
    assert seen.weight(90.0) != STRONG  # this run has had as much before


def test_unknown_leads_where_nothing_stands_out_and_says_what_to_log():
    curves = log(up(noisy(), rows=5), source="trainer_log")
    told = causes(curves, found())
    assert told[0].name == "unknown" and told[0].missing
    assert any("label_mask" in what for what in told[0].missing) and "Log next time" in told[0].next
    assert causes(curves, found("healthy")) == []


@pytest.mark.parametrize(
    "name, value",
    [("data_max_length", 6000.0), ("data_supervised_ratio", 0.99), ("data_padding_ratio", 0.95)],
)
def test_a_batch_beyond_all_before_it(name, value):
    draw = random.Random(2)
    usual = [draw.uniform(0.3, 0.4) for _ in range(STEPS)] if "ratio" in name else lengths()
    special = [value if step == BAD else one for step, one in enumerate(usual, start=1)]
    curves = log(up(noisy(), rows=3), **{name: special})
    told = causes(curves, found())[0]
    assert told.name == "special_batch" and "replay run --step 90" in told.next
    assert first(log(up(noisy(), rows=3), **{name: usual})) == "unknown"
    often = [value if step % 10 == 0 else one for step, one in enumerate(usual, start=1)]  # each tenth is like that
    assert first(log(up(noisy(), rows=3), **{name: often})) == "unknown"


def test_labels_that_moved():
    moved = [69.0 if step == BAD else 0.0 for step in range(1, STEPS + 1)]
    curves = log(up(noisy(), rows=3), data_labels_moved=moved)
    assert first(curves) == "special_batch" and score(curves, "special_batch") >= 0.85
    assert first(log(up(noisy(), rows=3), data_labels_moved=[0.0] * STEPS)) == "unknown"


def test_back_on_the_next_step_says_that_the_weights_were_sound():
    assert first(log(up(noisy(), rows=1))) == "special_batch"
    assert first(log(up(noisy(), rows=20))) == "unknown"
    means = log(up(noisy(), rows=1))
    means.logging_steps = 10  # a row is a mean of ten steps: it says nothing of the next step
    assert first(means) == "unknown"
    at_the_end = log(up(noisy(BAD), rows=1))  # nothing came after it
    assert first(at_the_end) == "unknown"


def test_the_place_is_where_the_excursion_began():
    curves = log(up(noisy(), rows=10), data_max_length=[9000.0 if s == BAD else v for s, v in enumerate(lengths(), 1)])
    assert "--step 90" in causes(curves, found(step=96))[0].next  # reported six steps late
    norm = [20.0 if step == BAD - 6 else 1.0 for step in range(1, STEPS + 1)]
    early = log(up(noisy(), rows=1), train_grad_norm=norm)
    assert "--step 90" in causes(early, found(step=BAD, since=BAD - 6))[0].next  # the loss counts, not the norm before


def test_a_jump_of_the_rate():
    rates = cosine()
    jumped = [rate * 20 if step >= BAD - 1 else rate for step, rate in enumerate(rates, start=1)]
    curves = log(up(noisy(), rows=15), train_lr=jumped)
    assert first(curves) == "lr_change" and score(curves, "lr_change") >= 0.85
    assert score(log(up(noisy(), rows=15), train_lr=rates), "lr_change") == 0
    warm = cosine(peak=1e-4, warm_up=STEPS)  # the first steps of a warm-up double the rate
    early = log(up(noisy(), at=8, rows=15), train_lr=warm)
    assert score(early, "lr_change", found(step=8)) == 0


def test_a_rate_that_somebody_set():
    curves = log(up(noisy(), rows=15), train_lr=cosine())
    curves.events = [event(BAD - 1, "rate set from outside")]
    assert score(curves, "lr_change") > 0
    scaled = log(up(noisy(), rows=15), train_lr=cosine(), train_lr_scale=[None] * 85 + [2.0] * (STEPS - 85))
    assert first(scaled) == "lr_change"
    curves.events[0]["step"] = 10
    assert score(curves, "lr_change") == 0


def test_a_rate_too_high_for_the_size():
    """Kaplan et al.: 0.003239 - 0.0001395 ln(1e9) = 3.5e-4 for a billion parameters."""
    loss = up(noisy(), rows=31)  # stays up
    curves = log(loss, train_lr=[5e-3] * STEPS)
    curves.run = {"model": {"parameters": {"total": 10**9, "trainable": 10**9}}}
    assert first(curves) == "lr_too_high"
    assert any("14.4 times" in line for line in causes(curves, found())[0].supports)
    usual = log(loss, train_lr=[3e-4] * STEPS)
    usual.run = curves.run
    assert first(usual) == "unknown"
    adapter = log(loss, train_lr=[2e-3] * STEPS)  # LoRA takes ten times the rate
    adapter.run = {"model": {"parameters": {"total": 10**9, "trainable": 10**7}}}
    assert first(adapter) == "unknown"


def test_updates_that_are_too_large_and_a_loss_that_stays_up():
    updates = [0.05 if step % 10 == 0 else None for step in range(1, STEPS + 1)]
    curves = log(up(noisy(), rows=31), train_lr=[1e-4] * STEPS, train_update_ratio=updates)
    assert first(curves) == "lr_too_high"
    small = [0.001 if value else None for value in updates]
    assert first(log(up(noisy(), rows=31), train_lr=[1e-4] * STEPS, train_update_ratio=small)) == "unknown"


def test_spikes_again_and_again_at_a_constant_rate():
    loss = up(noisy(), rows=31)
    for step in (45, 62):
        loss[step - 1] += 2.0
    again = log(loss, train_lr=[1e-4] * STEPS)
    assert first(again) == "lr_too_high" and "2 times before" in " ".join(causes(again, found())[0].supports)
    assert first(log(up(noisy(), rows=31), train_lr=[1e-4] * STEPS)) == "unknown"


def _epochs(accumulation: int, bad: tuple[int, ...], per_epoch: int = 30):
    loss = noisy()
    for step in bad:
        loss[step - 1] += 2.0
    epochs = [step / per_epoch for step in range(1, STEPS + 1)]
    samples = [4.0 if step % per_epoch == 0 else 16.0 for step in range(1, STEPS + 1)]
    curves = log(loss, train_epoch=epochs, data_samples=samples)
    curves.settings = {"gradient_accumulation_steps": accumulation}
    return curves


def test_the_smaller_last_window_of_an_epoch():
    assert first(_epochs(8, (30, 60, 90))) == "accumulation_boundary"
    assert score(_epochs(8, (30, 60, 90)), "accumulation_boundary") > score(_epochs(8, (90,)), "accumulation_boundary")
    assert score(_epochs(8, (85,)), "accumulation_boundary", found(step=85)) == 0  # within an epoch
    assert score(_epochs(1, (30, 60, 90)), "accumulation_boundary") < 0.5
    curves = _epochs(8, (85,))
    curves.events = [event(85, "normaliser not constant", name="label_mask")]
    assert score(curves, "accumulation_boundary", found(step=85)) > 0


def test_numbers_too_large_for_fp16():
    scales = [65536.0] * (BAD - 1) + [16384.0] * (STEPS - BAD + 1)
    skipped = [1.0 if step == BAD else 0.0 for step in range(1, STEPS + 1)]
    norms = [float("inf") if step == BAD else 1.0 for step in range(1, STEPS + 1)]
    curves = log(train_loss_scale=scales, train_step_skipped=skipped, train_grad_norm=norms)
    curves.settings = {"fp16": True, "bf16": False}
    assert first(curves, found("inf")) == "overflow"
    only_the_scale = log(train_loss_scale=scales)
    only_the_scale.settings = curves.settings
    assert first(only_the_scale, found("inf")) == "overflow"
    other = log(train_grad_norm=norms)
    not_known = score(other, "overflow", found("inf"))
    other.settings = {"fp16": False, "bf16": True}
    assert score(other, "overflow", found("inf")) < not_known


def _resumed(**columns):
    curves = log(up(noisy(), rows=31, by=0.3), **columns)
    curves.breaks = [Break(BAD - 1, "resume")]
    return curves


def test_an_optimizer_state_that_was_lost():
    rates = cosine()
    again = rates[: BAD - 1] + rates[: STEPS - BAD + 1]
    gap = found("resume_gap", step=STEPS, since=BAD)
    assert first(_resumed(train_lr=again), gap) == "optimizer_state_lost"
    fresh = _resumed(train_lr=rates)
    fresh.events = [event(BAD, "optimizer state fresh")]
    assert first(fresh, gap) == "optimizer_state_lost"
    assert first(_resumed(train_lr=rates), gap) == "unknown"  # nothing but a resume
    assert score(log(up(noisy()), train_lr=rates), "optimizer_state_lost") == 0  # no resume at all


def test_the_checkpoint_that_it_resumed_from(tmp_path):
    gap = found("resume_gap", step=STEPS, since=BAD)
    folder = tmp_path / f"checkpoint-{BAD - 1}"
    folder.mkdir()
    curves = _resumed(train_lr=cosine())
    curves.checkpoints = {BAD - 1: folder}
    assert first(curves, gap) == "optimizer_state_lost"
    (folder / "optimizer.pt").write_bytes(b"")
    assert first(curves, gap) == "unknown"


def test_data_that_began_again():
    gap = found("resume_gap", step=STEPS, since=BAD)
    whole = [step / 100 for step in range(1, STEPS + 1)]
    again = whole[: BAD - 1] + [step / 100 for step in range(1, STEPS - BAD + 2)]
    assert first(_resumed(train_lr=cosine(), train_epoch=again), gap) == "data_order_lost"
    assert score(_resumed(train_lr=cosine(), train_epoch=whole), "data_order_lost", gap) == 0


def test_ranks_out_of_step():
    curves = log(up(noisy(), rows=31), path=Path("run"))
    curves.run = {"world": {"world_size": 2}}
    curves.events = [event(BAD - 3, "desync", name="ranks", level="error")]
    assert first(curves) == "ranks"
    curves.run = {"world": {"world_size": 1}}
    assert score(curves, "ranks") == 0


def test_small_gradients_before_an_ordinary_one():
    norms = [1.0 if step < BAD - 16 or step >= BAD else 0.05 for step in range(1, STEPS + 1)]
    updates = [0.02 if step == BAD else 0.001 + 0.0001 * (step % 5) for step in range(1, STEPS + 1)]
    curves = log(up(noisy(), rows=31), train_grad_norm=norms, train_update_ratio=updates)
    assert first(curves) == "optimizer_moments"
    assert score(log(up(noisy(), rows=31), train_grad_norm=norms), "optimizer_moments") > 0
    calm = [0.001 + 0.0001 * (step % 5) for step in range(1, STEPS + 1)]
    assert score(log(up(noisy(), rows=31), train_update_ratio=calm), "optimizer_moments") == 0
