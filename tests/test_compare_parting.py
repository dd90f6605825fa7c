"""The parting rule: quiet on healthy pairs of every kind of noise, exact on planted changes, safe at any length."""

import json
import math
import random
from itertools import combinations
from pathlib import Path

import pytest
from compare_runs import losses

from llamafactory_obs.detect.parting import part

#: training losses of real LlamaFactory runs of 0.6M parameters (`fault_runs`), 200 steps each
REAL = json.loads((Path(__file__).parent / "parting_runs.json").read_text())
APART = ("parted", "apart_for_a_while")


def correlated(draw: random.Random, rows: int, phi: float) -> list[float]:
    value, out = 0.0, []
    for _ in range(rows):
        value = phi * value + draw.gauss(0, 0.1 * math.sqrt(1 - phi * phi))
        out.append(2 * math.exp(value))
    return out


def heavy(draw: random.Random, rows: int) -> list[float]:
    """Student's t with three degrees of freedom."""
    return [2 * math.exp(0.05 * draw.gauss(0, 1) / math.sqrt(draw.gammavariate(1.5, 1 / 1.5))) for _ in range(rows)]


NOISES = {
    "white": lambda draw: correlated(draw, 400, 0.0),
    "neighbours_alike": lambda draw: correlated(draw, 400, 0.5),
    "slow": lambda draw: correlated(draw, 400, 0.8),
    "heavy": lambda draw: heavy(draw, 400),
    "short": lambda draw: correlated(draw, 40, 0.0),
    "falling": lambda draw: losses(400, seed=draw.randrange(10**9), noise=0.1),
}


@pytest.mark.parametrize("noise", NOISES)
def test_noise_alone_is_no_parting(noise):
    """40 pairs of each kind: with a chance of 1 % each, more than 3 are a matter of 1 in 1,000."""
    draw = random.Random(noise)
    found = [part(NOISES[noise](draw), NOISES[noise](draw)).kind for _ in range(40)]
    assert sum(kind in APART for kind in found) <= 3, found
    assert found.count("parted") <= 1


def test_a_log_that_grows_is_judged_again_and_again():
    """The false parting rate holds over all looks together: 20 pairs, looked at 20 times each."""
    draw = random.Random(5)
    alarmed = 0
    for _ in range(20):
        a, b = correlated(draw, 800, 0.0), correlated(draw, 800, 0.0)
        alarmed += any(part(a[:rows], b[:rows]).kind in APART for rows in range(40, 801, 40))
    assert alarmed <= 2


@pytest.mark.parametrize(("size", "within"), [(1.05, 700), (1.10, 150), (1.30, 25), (2.0, 5)])
def test_a_planted_change_is_found_within_so_many_steps(size, within):
    """Noise of 6 % a row in each run (8.5 % in their difference), a change at row 1,000 of 2,000."""
    for seed in range(5):
        a, b = losses(2000, seed=seed), losses(2000, seed=seed + 100)
        b = [x * size if i >= 1000 else x for i, x in enumerate(b)]
        found = part(a, b)
        assert found.kind == "parted"
        assert 1000 <= found.seen <= 1000 + within
        assert abs(found.since - 1000) <= 60 / (size - 1) ** 2 / 100 + 2
        assert abs(found.last - math.log(size)) <= 2 * found.last_error


def test_it_says_when_they_meet_again():
    a, b = losses(1000, seed=1), losses(1000, seed=2)
    b = [x * 1.3 if 300 <= i < 500 else x for i, x in enumerate(b)]
    found = part(a, b)
    assert found.kind == "apart_for_a_while"
    assert abs(found.since - 300) <= 10 and abs(found.until - 499) <= 10
    assert abs(found.level - math.log(1.3)) <= 2 * found.error


def test_a_small_difference_that_is_real_is_a_level():
    a, b = losses(4000, seed=1, noise=0.01), losses(4000, seed=2, noise=0.01)
    found = part(a, [x * 1.005 for x in b])
    assert found.kind == "level" and abs(found.level - math.log(1.005)) < 0.001


def test_a_spike_is_no_parting():
    a, b = losses(500, seed=1), losses(500, seed=2)
    b[250] *= 30
    b[251] *= 8
    assert part(a, b).kind == "together"


def test_a_curve_that_lags_a_little_where_both_fall_is_no_parting():
    a = losses(1000, seed=1, noise=0.03, start=8.0, end=0.5)
    b = losses(1010, seed=2, noise=0.03, start=8.0, end=0.5)[10:]
    assert part(a, b).kind not in APART
    assert part(a, [x * 1.5 for x in b]).kind == "parted"


def test_memorised_losses_have_a_margin_in_nats():
    draw = random.Random(1)
    a = [2.0 * math.exp(-i / 20) + 0.001 * math.exp(draw.gauss(0, 0.2)) for i in range(400)]
    b = [2.0 * math.exp(-i / 20) + 0.003 * math.exp(draw.gauss(0, 0.2)) for i in range(400)]
    assert part(a, b).kind not in APART, "three times as much, but 0.002 nats of 2"
    assert part(a, [x + 0.1 for x in b]).kind == "parted"


def test_equal_curves():
    a = losses(100)
    found = part(a, a)
    assert (found.kind, found.level, found.last, found.noise) == ("together", 0.0, 0.0, 0.0)


@pytest.mark.parametrize("equal", [40, 250, 350])
def test_what_was_equal_bit_by_bit_says_nothing_of_the_noise(equal):
    """Two runs of one start that go other ways: most rows have a difference of exactly 0."""
    draw = random.Random(equal)
    a, b = correlated(draw, 400, 0.0), correlated(draw, 400, 0.0)
    b[:equal] = a[:equal]
    healthy = part(a, b)
    assert healthy.kind == "together" and healthy.noise == pytest.approx(0.1 * math.sqrt(2), rel=0.5)
    assert healthy.last_error > 0.01
    found = part(a, [x * (1.5 if row >= equal else 1) for row, x in enumerate(b)])
    assert found.kind == "parted" and abs(found.since - equal) <= 3


def test_a_few_rows_behind_the_equal_ones_are_too_few():
    a = losses(200)
    found = part(a, [*a[:190], *(x * 1.2 for x in a[190:])])
    assert found.kind == "together" and found.noise == math.inf


def test_rounded_losses_of_which_most_are_equal_have_noise():
    draw = random.Random(2)
    a, b = ([round(0.05 + 0.002 * draw.gauss(0, 1), 2) for _ in range(400)] for _ in range(2))
    assert sum(x == y for x, y in zip(a, b, strict=True)) > 300
    found = part(a, b)
    assert found.kind == "together" and found.noise > 0


def test_a_smooth_drift_without_noise_of_its_own_is_found():
    """The same batches in the same order: nothing but the drift is left in the difference."""
    a = losses(400, seed=3)
    b = [x * math.exp(0.001 * max(0, i - 100)) for i, x in enumerate(a)]
    found = part(a, b)
    assert found.kind == "parted" and 100 < found.since < 300


def test_too_few_rows():
    assert part(losses(15), [5.0] * 15).kind == "too_short"
    assert part([], []).rows == 0
    with pytest.raises(ValueError, match="same rows"):
        part([1.0], [])
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0"):
            part([1.0], [bad])


def test_real_runs_of_other_seeds_stay_together():
    """Those at a constant rate do not: trained from nothing, they learn the task sooner or later. `compare` knows that
    nothing but the seed lies between them (`test_compare.py`)."""
    curves = REAL["cosine_2e-3"]
    for one, other in combinations(sorted(curves), 2):
        found = part(curves[one], curves[other])
        assert found.kind not in APART, (one, other, found)


def test_real_runs_with_a_change_part_where_it_is():
    """The rate times 12 (up) and times 0.02 (down) from step 101 on, against the same seed and against others."""
    healthy = REAL["constant_1e-3"]
    for seed in ("1", "2"):
        late = part(healthy[seed], REAL["times_0.02_at_101"][seed])
        assert late.kind in ("parted", "level") and late.since > 101, "where nothing is learnt any more it shows later"
        found = part(healthy[seed], REAL["times_12_at_101"][seed])
        assert found.kind == "parted" and 100 <= found.since <= 115 and found.seen <= 130, found
        assert found.last > 0.1
        other = part(healthy["3"], REAL["times_12_at_101"][seed])
        assert other.kind == "parted" and 95 <= other.since <= 120 and other.seen <= 135, other
