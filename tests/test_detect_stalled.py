import math

import pytest

from llamafactory_obs.detect import StalledDetector


def feed(norms, detector=None, first=1):
    detector = detector or StalledDetector()
    return [detector.update(i, norm) for i, norm in enumerate(norms, first)]


def said(norms, **options):
    return [(f.step, f.level, f.name) for f in feed(norms, StalledDetector(**options)) if f]


@pytest.mark.parametrize("small", [0.0, 1e-9, 9.9e-7])
def test_five_small_norms_in_a_row_are_one_error(small):
    assert said([0.5] * 10 + [small] * 50) == [(15, "error", "stalled")]
    finding = feed([0.5] * 10 + [small] * 5)[-1]
    assert finding.action == "kill"
    assert "since step 11" in finding.text
    assert "lora_target" in finding.text


def test_a_run_that_starts_with_zero_is_found_at_step_five():
    assert said([0.0] * 100) == [(5, "error", "stalled")]


def test_four_in_a_row_and_scattered_zeros_are_nothing():
    assert said([0.0, 0.0, 0.0, 0.0, 0.5] * 20) == []


def test_small_but_living_norms_are_nothing():
    assert said([1e-6] * 100) == []
    assert said([9e-5] * 100) == []


def test_learning_again_closes_it_and_a_second_stall_is_news():
    assert said([0.0] * 5 + [0.3] + [0.0] * 5) == [
        (5, "error", "stalled"),
        (6, "info", "learning_again"),
        (11, "error", "stalled"),
    ]


def test_missing_norms_change_nothing():
    assert said([0.0, None, 0.0, None, 0.0, "0", 0.0, False, 0.0]) == [(9, "error", "stalled")]


@pytest.mark.parametrize("other", [math.nan, math.inf, -1.0])
def test_non_finite_and_negative_norms_are_not_small_and_break_the_row(other):
    assert said([0.0, 0.0, 0.0, 0.0, other, 0.0, 0.0, 0.0, 0.0]) == []
    assert said([other] * 20) == []


def test_the_options_count():
    assert said([0.01] * 3, threshold=0.1, patience=3) == [(3, "error", "stalled")]
    with pytest.raises(ValueError, match="threshold"):
        StalledDetector(threshold=0.0)


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_replay_restores_the_state(cut):
    norms = [0.0] * 6 + [0.4] + [0.0] * 6
    whole, resumed = feed(norms), StalledDetector()
    feed(norms[:cut], resumed)
    assert feed(norms[cut:], resumed, first=cut + 1) == whole[cut:]
    assert any(whole[cut:])
