"""What counts as out of the ordinary, against the textbook formula."""

import math
import random
import statistics

import pytest

from llamafactory_obs.replay.ordinary import around, judge


def textbook(value: float, others: list[float], floor: float) -> float:
    middle = statistics.median(others)
    return (value - middle) / max(1.4826 * statistics.median_high([abs(one - middle) for one in others]), floor)


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_norm_by_the_formula(seed):
    draw = random.Random(seed)
    others = [draw.gauss(2.0, 0.3) for _ in range(8)]
    value = draw.uniform(1, 4)
    floor = max(0.02, 0.05 * statistics.median(others))
    assert judge("loss", value, others).z == pytest.approx(textbook(value, others, floor))
    logs = [math.log(one) for one in others]
    assert judge("grad_norm", value, others).z == pytest.approx(textbook(math.log(value), logs, 0.15))


def test_equal_batches_do_not_make_a_small_rise_an_alarm():
    assert not judge("loss", 0.09, [0.002] * 8).out and judge("loss", 0.11, [0.002] * 8).out
    assert not judge("grad_norm", 2.0, [1.0] * 8).out and judge("grad_norm", 2.2, [1.0] * 8).out


def test_only_a_rise_of_the_loss_counts_but_both_sides_of_a_share():
    assert not judge("loss", 0.1, [2.0] * 8).out
    assert judge("supervised_ratio", 0.1, [0.3] * 8).out and judge("supervised_ratio", 0.5, [0.3] * 8).out


def test_fewer_than_four_judge_nothing():
    assert judge("loss", 9.0, [1.0] * 3) is None and judge("loss", 9.0, [1.0] * 4).out
    assert judge("loss", 9.0, [1.0, 1.0, 1.0, None, math.nan]) is None


def test_normal_values_are_rarely_accused():
    """0.5% by chance for 8 others: the number in the module's text."""
    draw = random.Random(1)
    hits = sum(judge("loss", draw.gauss(100, 30), [draw.gauss(100, 30) for _ in range(8)]).out for _ in range(20000))
    assert hits / 20000 < 0.008


def test_nearest_first_on_both_sides():
    assert around(10, [1, 8, 9, 10, 11, 12, 30]) == [9, 11, 8, 12, 1, 30]
