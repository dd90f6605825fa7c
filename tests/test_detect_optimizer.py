"""Detectors of the optimizer and of quality, on hand-made series; every fault beside its clean control."""

import math

import pytest

from llamafactory_obs.detect import (
    ClipRateDetector,
    LossScaleDetector,
    LrScheduleDetector,
    MomentsDetector,
    NormaliserDetector,
    OverfittingDetector,
)


def changes(rates, **more):
    detector, found = LrScheduleDetector(), []
    for step, rate in enumerate(rates, 1):
        finding = detector.update(step, rate, **{name: values.get(step) for name, values in more.items()})
        if finding is not None:
            found.append((finding.name, finding.step))
    return found


def cosine(steps, warmup=0, peak=1e-3, floor=0.0, cycles=0.5):
    for step in range(steps):
        if step < warmup:
            yield peak * step / warmup
        else:
            done = (step - warmup) / (steps - warmup)
            yield floor + (peak - floor) * 0.5 * (1 + math.cos(2 * math.pi * cycles * done))


@pytest.mark.parametrize("steps", [6, 20, 100, 1000, 20000])
def test_a_cosine_is_one_event_whatever_its_length(steps):
    assert changes(cosine(steps)) == [("first rate", 1)]


@pytest.mark.parametrize(("steps", "warmup"), [(20, 3), (100, 10), (5000, 150)])
def test_the_end_of_the_warm_up(steps, warmup):
    assert changes(cosine(steps, warmup)) == [("first rate", 1), ("warm-up ends", warmup + 2)]


def test_schedules_of_many_kinds():
    linear = [1e-3 * (1 - i / 50) for i in range(51)] + [0.0] * 5
    assert changes(linear) == [("first rate", 1), ("schedule ends", 52)]
    assert changes([1e-3] * 100) == [("first rate", 1)]
    stable = [i * 1e-4 for i in range(1, 11)] + [1e-3] * 20 + [1e-3 * (1 - i / 20) for i in range(1, 20)]
    assert changes(stable) == [("first rate", 1), ("warm-up ends", 11), ("decay begins", 31)]
    assert changes([1e-3] * 30 + [1e-4] * 30 + [1e-5] * 30) == [("first rate", 1), ("jump", 31), ("jump", 61)]
    restarts = [*cosine(50), *cosine(50), *cosine(50)]
    assert changes(restarts) == [("first rate", 1), ("jump", 51), ("jump", 101)]
    inverse = [1e-3 * min(step / 20, (20 / step) ** 0.5) for step in range(1, 400)]
    assert changes(inverse) == [("first rate", 1), ("warm-up ends", 21)]


def test_a_skipped_step_does_not_end_the_warm_up():
    rates = [1e-4, 2e-4, 2e-4, 3e-4, 4e-4]
    assert changes(rates, skipped={2: True}) == [("first rate", 1)]
    assert changes(rates)[1] == ("warm-up ends", 3), "the control"


def test_a_rate_that_is_not_the_scheduler_s():
    rates = [1e-3, 9e-4, 8e-3, 7e-4, 6e-4]
    planned = dict(enumerate([1e-3, 9e-4, 8e-4, 7e-4, 6e-4], 1))
    assert changes(rates, planned=planned) == [("first rate", 1), ("rate set from outside", 3)]
    assert changes(planned.values(), planned=planned) == [("first rate", 1)]


def test_a_resume_that_starts_the_schedule_anew():
    falling = [1e-3 * (1 - i / 10) for i in range(5)]
    assert changes([*falling, 1e-3, 9e-4], begins={6: True})[-1] == ("unexplained jump", 6)
    assert changes([*falling, 5e-4, 4e-4], begins={6: True}) == [("first rate", 1)]


def test_a_restless_schedule_is_not_told_for_ever():
    assert len(changes([1e-3 + (i % 2) * 1e-4 for i in range(1000)])) == 50


def test_always_clipped():
    detector = ClipRateDetector(window=10)
    assert [detector.update(step, 0.5) is not None for step in range(1, 25)].index(True) == 9
    assert all(detector.update(step, 0.5) is None for step in range(25, 60)), "once"
    assert all(detector.update(step, 1.0) is None for step in range(60, 80))
    assert [detector.update(step, 0.5) is not None for step in range(80, 95)].index(True) == 9, "again after a pause"
    control = ClipRateDetector(window=10)
    assert all(control.update(step, 1.0 if step % 5 == 0 else 0.5) is None for step in range(100))


def test_the_loss_scale():
    detector = LossScaleDetector()
    assert [detector.update(i, 65536.0 / 2**i) is not None for i in range(20)].index(True) == 17, "below 1"
    control = LossScaleDetector()
    assert all(control.update(i, 65536.0 / 2 ** min(i, 12)) is None for i in range(50))


def test_moments():
    detector = MomentsDetector()
    assert [f.name for f in detector.update(10, 3, 0.1)] == ["broken moments"] and detector.update(20, 3, 0.1) == []
    vanished = MomentsDetector()
    assert vanished.update(10, 0, 1.0) == []
    assert [f.name for f in vanished.update(20, 0, 1.0)] == ["vanished moments"] and vanished.update(30, 0, 1.0) == []
    assert all(MomentsDetector().update(step, 0, 0.6) == [] for step in range(10))


def test_the_normaliser_within_a_step():
    detector = NormaliserDetector(version="5.6.0")
    finding = detector.update(3, [279, 279, 470, 470])
    assert finding.level == "warn" and "5.6.0" in finding.text and "279, 279, 470, 470" in finding.text
    assert detector.update(4, [1, 2]) is None, "once"
    control = NormaliserDetector(version="5.6.0")
    assert all(control.update(1, counts) is None for counts in ([], [None] * 4, [279] * 4, [470]))
    assert control.update(2, [279, None]) is not None


def overfit(evals, trains, patience=3):
    detector = OverfittingDetector(patience=patience)
    pairs = enumerate(zip(evals, trains, strict=True), 1)
    return [(f.name, f.step) for step, (e, t) in pairs if (f := detector.update(step * 100, e, t)) is not None]


def test_overfitting():
    falling = [1.2, 1.0, 0.8, 0.6, 0.5, 0.4]
    assert overfit([1.3, 1.15, 1.18, 1.25, 1.31, 1.4], falling) == [("overfitting", 500)]
    assert overfit([1.3, 1.15, 1.1, 1.08, 1.05, 1.0], falling) == []
    assert overfit([1.3, 1.15, 1.18, 1.25, 1.31, 1.4], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]) == [], "both rise: diverging"
    assert overfit([1.3, 1.15, 1.18, 1.1, 1.18, 1.1], falling) == [], "noise"
    assert overfit([1.3, 1.15, 1.18, 1.2, 1.3], [None] * 5) == [], "unknown is no finding"
    assert overfit([1.0, 1.1, 1.2, 1.3, 0.9], falling[:5]) == [("overfitting", 400), ("overfitting over", 500)]
