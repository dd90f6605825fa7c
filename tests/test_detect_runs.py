"""Detectors on the rate, the evaluation, the step times, resumes, rewards; each with a clean run beside it."""

import math
import random

import pytest
from diagnose_curves import falling, schedule

from llamafactory_obs.detect import (
    EvalTurnDetector,
    KlJumpDetector,
    LrAnomalyDetector,
    PreferenceDetector,
    ResumeGapDetector,
    RewardCollapseDetector,
    ThroughputDropDetector,
)


def feed(detector, *columns, first=1):
    rows = zip(*columns, strict=True)
    return [f for i, row in enumerate(rows, first) if (f := detector.update(i, *row))]


def linear(rows, peak=1e-4, warm=0):
    return [peak * (i + 1) / warm if i < warm else peak * (1 - (i - warm) / (rows - warm)) for i in range(rows)]


@pytest.mark.parametrize(
    "rates",
    [
        schedule(300),
        linear(300),
        linear(300, warm=30),
        [1e-4] * 300,
        [1e-4 * 0.99**i for i in range(300)],
        [0.0, *[1e-4] * 50],
    ],
)
def test_usual_schedules_are_quiet(rates):
    assert feed(LrAnomalyDetector(max_steps=len(rates)), rates) == []


def test_a_rate_that_jumps_up_or_down():
    rates = schedule(300)
    up = rates[:200] + [20 * v for v in rates[200:]]
    (found,) = feed(LrAnomalyDetector(), up)
    assert (found.step, found.evidence["what"]) == (201, "jump") and found.evidence["lr"] > 10 * found.evidence[
        "before"
    ]


def test_a_warm_up_that_is_no_straight_line():
    bent = [1e-4 * (i / 40) ** 4 for i in range(1, 41)] + linear(100)
    assert [f.evidence["what"] for f in feed(LrAnomalyDetector(), bent)] == ["warm-up"]
    skipped = [v for v in schedule(200, warm=40) for _ in range(1 + (v == 5e-5))]  # one step twice
    assert feed(LrAnomalyDetector(), skipped) == []


def test_a_schedule_that_ends_early():
    rates = linear(100) + [0.0] * 50
    (found,) = feed(LrAnomalyDetector(max_steps=1000), rates)
    assert found.evidence["what"] == "ended early"
    assert feed(LrAnomalyDetector(max_steps=150), linear(140) + [0.0] * 10) == []


def evaluations(losses, train):
    return feed(EvalTurnDetector(), losses, train)


def test_the_evaluation_turns():
    (found,) = evaluations([1.05, 1.0, 0.98, 1.02, 1.1, 1.2], [1.1, 0.9, 0.8, 0.7, 0.6, 0.5])
    assert found.name == "overfit" and found.evidence["best_step"] == 3 and "step 3" in found.text


@pytest.mark.parametrize(
    ("losses", "train"),
    [
        ([1.05, 1.0, 0.98, 0.97, 0.965, 0.964], [1.1, 0.9, 0.8, 0.7, 0.6, 0.5]),
        ([0.6275, 0.6270, 0.6280, 0.6287], [0.6, 0.59, 0.58, 0.57]),  # under 1 %
        ([1.0, 0.95, 1.02, 0.96, 1.03, 0.95, 1.02, 0.97], [1.0, 0.9, 0.8, 0.8, 0.7, 0.7, 0.6, 0.6]),  # its noise
        ([1.0, 0.9, 1.2, 1.3], [1.0, 0.9, 1.2, 1.4]),  # the training loss rises too: no over-fitting
    ],
)
def test_an_evaluation_that_falls_or_wavers_is_quiet(losses, train):
    assert evaluations(losses, train) == []


def test_a_new_best_ends_it_and_nan_is_the_evaluation_s_own():
    found = evaluations([1.0, 1.1, 1.2, 0.9], [1.0, 0.8, 0.6, 0.5])
    assert [f.name for f in found] == ["overfit", "overfit_over"]
    (broken,) = evaluations([1.0, math.nan, math.nan], [1.0, 0.9, 0.8])
    assert (broken.name, broken.action, broken.evidence["where"]) == ("nan", "keep", "evaluation")


def times(rows, slow=(), factor=2.2, noise=0.05, base=1.0, seed=1):
    draw = random.Random(seed)
    return [base * (factor if i in slow else 1) * math.exp(draw.gauss(0, noise)) for i in range(rows)]


def test_slower_for_a_while():
    found = feed(ThroughputDropDetector(), times(300, range(150, 190)))
    assert [f.name for f in found] == ["throughput_drop", "throughput_drop_over"]
    assert 145 <= found[1].evidence["since"] <= 155 and 182 <= found[1].until <= 192


def test_pauses_and_a_coarse_clock_are_no_drop():
    assert feed(ThroughputDropDetector(), times(400, range(0, 400, 10), factor=30)) == []  # a save each ten rows
    assert feed(ThroughputDropDetector(), times(300, noise=0.3)) == []
    draw = random.Random(3)
    whole = [draw.choice([0.0, 0.2, 0.4]) for _ in range(500)]  # five steps of 0.2 s in a row, clock of one second
    assert feed(ThroughputDropDetector(steps_per_row=5, resolution=1.0), whole) == []
    assert feed(ThroughputDropDetector(), times(200, range(100, 200)), [i >= 100 for i in range(200)]) == []


def resumed(after, rates=None, epochs=None, before=None):
    detector = ResumeGapDetector()
    before = before or falling(60, 1.0, 0.95)
    rates, epochs = rates or [1e-4] * 100, epochs or [i / 50 for i in range(100)]
    found = []
    for i, loss in enumerate(before + after):
        if i == len(before):
            detector.resume({"why": "another segment"})
        found.append(detector.update(i + 1, loss, rates[i], 1.0, epochs[i]))
    return [f for f in found if f]


def test_an_epoch_that_falls_is_a_gap_and_a_step_that_falls_with_it_is_not():
    same = falling(40, 0.95, 0.95)
    (found,) = resumed(same, epochs=[i / 50 if i < 60 else 0.1 + i / 5000 for i in range(100)])[:1]
    assert found.evidence["epoch_before"] == pytest.approx(1.18) and "epoch" in found.text
    assert resumed(same) == []


def test_a_lower_loss_after_a_resume_is_no_gap():
    assert resumed(falling(40, 0.7, 0.7)) == []


def test_kl_and_rewards():
    draw = random.Random(2)
    kl = [abs(draw.gauss(0.4, 0.1)) for _ in range(100)]
    assert feed(KlJumpDetector(), kl) == []
    assert [f.step for f in feed(KlJumpDetector(), [*kl[:60], 180.0, *kl[60:]])] == [61]
    up = [i / 100 + draw.gauss(0, 0.05) for i in range(100)]
    assert feed(RewardCollapseDetector(), up) == []
    lost = feed(RewardCollapseDetector(), up + [0.1 + draw.gauss(0, 0.05) for _ in range(60)])
    assert [f.name for f in lost] == ["reward_collapse"] and 80 <= lost[0].evidence["since"] <= 104
    same = feed(RewardCollapseDetector(), [1.0] * 80, [0.3] * 40 + [0.0] * 40)
    assert [f.name for f in same] == ["no_advantage"]


def test_pairs_that_are_told_apart_and_pairs_that_are_not():
    draw = random.Random(3)

    def pairs(accuracy, margin):
        detector = PreferenceDetector()
        for i in range(100):
            detector.update(i, accuracy(i) + draw.gauss(0, 0.05), margin(i) + draw.gauss(0, 0.05), 0.0)
        return [f.name for f in detector.finish(100)]

    assert pairs(lambda i: 0.5 + 0.004 * i, lambda i: 0.02 * i) == []
    assert pairs(lambda i: 0.5, lambda i: 0.0) == ["preference_flat"]
    assert pairs(lambda i: 0.2, lambda i: -0.02 * i) == ["preference_reversed"]


def noisy_evaluations(seed, rise=0.0):
    """Twenty evaluations with 3 % of noise that come to rest at 1.1 after a fall; `rise` is added from the tenth on."""
    draw = random.Random(seed)
    falling = [1.1 + 0.9 * math.exp(-i / 2) + rise * max(0, i - 9) for i in range(20)]
    return [value * math.exp(draw.gauss(0, 0.03)) for value in falling]


def test_evaluations_that_only_go_up_and_down_are_no_over_fitting():
    train = [2.0 - 0.04 * i for i in range(20)]
    noise = sum(bool(evaluations(noisy_evaluations(seed), train)) for seed in range(100))
    turned = sum(bool(evaluations(noisy_evaluations(seed, rise=0.05), train)) for seed in range(100))
    assert noise <= 25 and turned >= 90


def test_an_over_fitting_is_told_with_the_newest_numbers_at_the_end():
    detector = EvalTurnDetector()
    for i, loss in enumerate([1.5, 1.2, 1.1, 1.15, 1.2, 1.4, 1.6]):
        detector.update(100 * i, loss, 2.0 - 0.2 * i)
    assert detector.finish().evidence["eval_loss"] == 1.6
    assert EvalTurnDetector().finish() is None


def test_the_restarts_of_a_schedule_are_no_jumps():
    def cosine(cycle, rows=200):
        return [1e-4 * 0.5 * (1 + math.cos(math.pi * (i % cycle) / cycle)) for i in range(rows)]

    for cycle in (50, 100):
        assert not feed(LrAnomalyDetector(max_steps=200), cosine(cycle))
    (odd,) = feed(LrAnomalyDetector(max_steps=1000), cosine(130))  # no number of cycles makes the planned steps
    assert odd.evidence["what"] == "jump"


def test_groups_without_an_advantage_from_the_first_row_on():
    detector = RewardCollapseDetector()
    found = [detector.update(i, 0.0, 0.0) for i in range(40)] + [detector.update(40 + i, 0.5, 0.4) for i in range(40)]
    assert [f.name for f in found if f is not None] == ["no_advantage", "no_advantage_over"]
