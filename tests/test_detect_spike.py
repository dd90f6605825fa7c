import json
import math
import random

import pytest

from llamafactory_obs.detect import SpikeDetector

GRAD_5 = [14.98, 9.78, 7.64, 92.10, 29.00, 5.21, 7.83, 7.79, 11140]


def feed(norms, losses=None, detector=None, first=1):
    detector = detector or SpikeDetector()
    losses = losses or [None] * len(norms)
    return [detector.update(i, n, loss) for i, (n, loss) in enumerate(zip(norms, losses, strict=True), first)]


def said(norms, losses=None, detector=None):
    """(step, level, name) of what was found."""
    return [(f.step, f.level, f.name) for f in feed(norms, losses, detector) if f]


def noisy(count, level=1.0, sd=0.2, seed=0):
    rng = random.Random(seed)
    return [level * math.exp(rng.gauss(0, sd)) for _ in range(count)]


def test_grad_5_warns_at_92_is_silent_at_29_and_alarms_at_11140():
    assert said(GRAD_5) == [(4, "warn", "spike"), (9, "error", "spike")]


def test_grad_5_baseline_is_not_poisoned_by_the_spike():
    evidence = feed(GRAD_5)[-1].evidence
    assert evidence["baseline"] == pytest.approx(7.81, abs=0.01)
    assert evidence["norm"] == 11140
    assert evidence["ratio"] > 1000
    assert evidence["window"] == 6  # without 92.10, without 29.00 that is still up, without the one judged


def test_grad_1_values_above_the_clipping_limit_are_no_alert():
    assert said([0.8, 3.7, 12.1]) == []
    assert said(noisy(500, level=30.0)) == []  # always far above max_grad_norm: 1.0


def test_large_norms_of_the_first_steps_are_no_alert():
    falling = [400 * 0.6**k + 1.0 for k in range(20)]
    assert said(falling + noisy(200)) == []


def test_a_learning_rate_warmup_that_lifts_the_norm_is_no_alert():
    rising = [0.2 * 1.25**k for k in range(15)]
    assert said(rising + noisy(200, level=rising[-1])) == []


def test_a_jump_in_the_first_steps_that_stays_is_taken_as_the_level():
    assert [level for _, level, _ in said([0.1, 0.1, 0.1, *noisy(100, level=2.0)])] == ["warn"]


def test_a_few_high_steps_early_on_do_not_become_the_level():
    finding = feed([0.1, 0.1, 0.1, 5.0, 5.0, 0.1, 5.0, 5.0, 0.1, 0.1, 50.0])[-1]
    assert finding.evidence["baseline"] == 0.1


def test_one_step_warns_once_and_its_end_is_not_news():
    assert said([*noisy(50), 20.0, *noisy(50, seed=1)]) == [(51, "warn", "spike")]


def test_a_loss_rise_on_the_same_step_makes_it_an_alarm_that_is_closed_later():
    norms = [*noisy(50), 20.0, *noisy(50, seed=1)]
    losses = [1.5] * 50 + [2.5] + [1.5] * 50
    found = said(norms, losses)
    assert found == [(51, "error", "spike"), (59, "info", "spike_over")]
    evidence = feed(norms, losses)[50].evidence
    assert (evidence["loss"], evidence["loss_baseline"], evidence["reason"]) == (2.5, 1.5, "loss")


def test_a_loss_rise_on_the_next_step_raises_the_warning_once():
    norms = [*noisy(50), 20.0, *noisy(20, seed=1)]
    losses = [1.5] * 51 + [2.5] * 2 + [1.5] * 18
    assert said(norms, losses)[:2] == [(51, "warn", "spike"), (52, "error", "spike")]


def test_a_loss_rise_lets_a_smaller_spike_count():
    norms = [*noisy(80, sd=0.05), 2.7]
    assert said(norms, [1.5] * 80 + [1.5]) == []
    assert said(norms, [1.5] * 80 + [2.5]) == [(81, "error", "spike")]


def test_a_loss_rise_alone_says_nothing():
    assert said(noisy(60), [1.5] * 50 + [9.0] * 10) == []


def test_the_relative_jumps_of_a_tiny_loss_do_not_couple():
    norms = [*noisy(50), 20.0]
    assert said(norms, [0.002] * 50 + [0.08]) == [(51, "warn", "spike")]


def test_a_gigantic_ratio_is_an_alarm_by_itself():
    assert said([*noisy(50), 300.0])[0] == (51, "error", "spike")


def test_several_in_a_row_that_do_not_come_back_are_an_alarm():
    found = said([*noisy(50), 10.0, 11.0, 9.0, 12.0, 10.0])
    assert found == [(51, "warn", "spike"), (54, "error", "spike")]


def test_a_lasting_new_level_is_accepted_and_then_judged_against():
    detector = SpikeDetector()
    found = said(noisy(100) + noisy(200, level=12.0, seed=2), detector=detector)
    assert [f[1:] for f in found] == [("warn", "spike"), ("error", "spike"), ("info", "new_level")]
    assert found[-1][0] == 120
    assert detector.update(301, 12.0 * 20) is not None  # a spike on the new level is seen again


def test_a_two_level_series_does_not_alarm_for_ever():
    flipping = [1.0, 10.0] * 500
    assert len(said(noisy(40) + flipping)) <= 3
    rare = [1.0, 1.0, 1.0, 10.0] * 500
    assert len(said(noisy(40) + rare)) <= 12  # once per `memory` of 200 steps at most


def test_repeated_spikes_of_the_same_height_warn_once():
    series = noisy(60)
    for seed in range(6):
        series += [15.0 - seed, *noisy(19, seed=seed)]
    assert said(series) == [(61, "warn", "spike")]


def test_repeated_gigantic_spikes_are_one_alarm_until_one_is_higher_or_the_loss_rises():
    series = noisy(60)
    for height in (500.0, 400.0, 450.0, 300.0):
        series += [height, *noisy(19, seed=int(height))]
    assert [f for f in said(series) if f[1] != "info"] == [(61, "error", "spike")]
    losses = [1.5] * 80 + [3.0] + [1.5] * 59
    assert [f for f in said(series, losses) if f[1] != "info"] == [(61, "error", "spike"), (81, "error", "spike")]


def test_a_higher_spike_than_the_reported_one_warns_again():
    series = [*noisy(60), 10.0, *noisy(20, seed=1), 40.0]
    assert said(series) == [(61, "warn", "spike"), (82, "warn", "spike")]


def test_a_blow_up_is_an_alarm_within_ten_steps():
    series = noisy(100) + [1.2**k for k in range(1, 40)]
    assert 100 < next(step for step, level, _ in said(series) if level == "error") <= 112


def test_a_constant_series_and_a_slow_ramp_are_quiet():
    assert said([0.5] * 1000) == []
    assert said([0.5 * 1.01**k for k in range(500)]) == []


def test_pure_noise_is_quiet():
    assert said(noisy(5000, sd=0.3)) == []


@pytest.mark.parametrize("norm", [None, math.nan, math.inf, -math.inf, 0.0, -3.0, "12", True])
def test_what_is_no_norm_changes_nothing(norm):
    detector, clean = SpikeDetector(), SpikeDetector()
    series = [*noisy(30), 20.0]
    for step, value in enumerate(series):
        assert detector.update(step, norm, 1.0) is None
        assert detector.update(step, value, 1.0) == clean.update(step, value, 1.0)


@pytest.mark.parametrize("loss", [math.nan, math.inf, None, "1.5"])
def test_a_useless_loss_leaves_the_norm_judged_alone(loss):
    assert said([*noisy(50), 20.0], [1.5] * 50 + [loss]) == [(51, "warn", "spike")]


@pytest.mark.parametrize("cut", [2, 5, 51, 53, 60, 115])
def test_replay_restores_the_state(cut):
    norms = [*noisy(50), 20.0, 18.0, *noisy(50, seed=1), *noisy(40, level=9.0, seed=2), 500.0, *noisy(20, level=9.0)]
    losses = [1.5 + (0.8 if i in (50, 110) else 0.0) for i in range(len(norms))]
    whole = feed(norms, losses)
    resumed = SpikeDetector()
    feed(norms[:cut], losses[:cut], resumed)
    assert feed(norms[cut:], losses[cut:], resumed, first=cut + 1) == whole[cut:]
    assert any(whole[cut:])


def test_memory_stays_bounded():
    detector = SpikeDetector(window=32)
    feed([*noisy(2000, sd=1.5), *noisy(2000, level=50.0, sd=1.5)], detector=detector)
    assert len(detector._norms) == 32
    assert len(detector._norms._sorted) == 32
    assert len(detector._values) <= 32


def test_findings_are_strict_json_and_say_what_to_do():
    for finding in filter(None, feed([*noisy(50), 10.0, 11.0, 9.0, 12.0, *noisy(20, seed=3)])):
        json.dumps(finding.to_dict(), allow_nan=False)
        assert str(finding.step) in finding.text or str(finding.evidence["since"]) in finding.text
        assert finding.limits
        assert finding.action in ("keep", "none")


@pytest.mark.parametrize("options", [{"ratio": 1.5}, {"exit_ratio": 1.0}, {"warmup": 100}, {"min_history": 0}])
def test_options_that_contradict_each_other_are_refused(options):
    with pytest.raises(ValueError, match="wanted"):
        SpikeDetector(**options)
