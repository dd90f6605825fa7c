import random
import statistics

import pytest

from llamafactory_obs.detect.rolling import RollingMedian


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_median_and_mad_equal_the_plain_computation(size):
    rng, window, values = random.Random(size), RollingMedian(size), []
    for _ in range(500):
        value = rng.choice([rng.gauss(0, 1), 0.0, rng.gauss(0, 100)])
        window.push(value)
        values = [*values, value][-size:]
        center = statistics.median(values)
        assert len(window) == len(values)
        assert window.median() == center
        assert window.mad() == sorted(abs(v - center) for v in values)[len(values) // 2]


def test_replace_keeps_the_last_values():
    window = RollingMedian(3)
    window.replace([9, 1, 2, 3])
    assert (len(window), window.median(), window.mad()) == (3, 2, 1)
    window.push(10)
    assert window.median() == 3


def test_a_window_without_room_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        RollingMedian(0)
