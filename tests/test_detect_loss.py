"""Detectors on the loss: spikes, zeros, shapes, steps of epochs; each with a clean run beside it."""

import math
import random
from statistics import NormalDist

import pytest
from diagnose_curves import falling, schedule

from llamafactory_obs.detect import EpochStepsDetector, LossShapeDetector, LossSpikeDetector, ZeroLossDetector
from llamafactory_obs.detect.epoch_steps import stairs
from llamafactory_obs.detect.loss_blocks import LossBlocks


def spikes(losses, **options):
    detector = LossSpikeDetector(**options)
    found = [f for i, v in enumerate(losses, 1) if (f := detector.update(i, v))]
    last = detector.finish(len(losses))
    return [*found, last] if last else found


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_loss_is_quiet(seed):
    assert spikes(falling(1000, noise=0.1, seed=seed)) == []


def test_one_row_of_twice_the_level_opens_and_closes():
    losses = falling(300)
    losses[200] *= 2
    up, over = spikes(losses)
    assert (up.name, up.level, up.step) == ("spike", "warn", 201)
    assert (over.name, over.level, over.until) == ("spike_over", "info", 201)
    assert over.evidence["ratio"] == pytest.approx(2, rel=0.15)


def test_the_spike_is_no_part_of_the_level():
    losses = falling(300)
    losses[200:206] = [5 * v for v in losses[200:206]]
    losses[230] *= 2
    assert [f.step for f in spikes(losses) if f.level == "warn"] == [201, 231]


def test_a_slow_rise_of_30_percent_is_found_by_the_sum_within_ten_rows():
    losses = falling(300, noise=0.05)
    losses[200:] = [1.3 * v for v in losses[200:]]
    first = spikes(losses)[0]
    assert first.name == "spike" and 201 <= first.step <= 210 and 198 <= first.evidence["since"] <= 204


def test_noise_whose_neighbours_are_alike_is_no_excursion():
    draw, wave, losses = random.Random(2), 0.0, []
    for _ in range(2000):
        wave = 0.5 * wave + 0.866 * draw.gauss(0, 1)
        losses.append(math.exp(0.08 * wave))
    assert sum(f.level == "warn" for f in spikes(losses)) <= 4  # white noise of this size: none


def test_a_memorised_run_does_not_alarm_for_its_relative_jumps():
    draw = random.Random(1)
    losses = falling(200, 2.0, 0.02) + [0.002 * math.exp(draw.gauss(0, 0.4)) for _ in range(500)]
    losses[400] = 0.02  # ten times its level, and nothing
    assert spikes(losses) == []
    losses[400] = 0.5
    assert [f.step for f in spikes(losses)][:1] == [401]


def test_a_loss_of_another_scale_has_a_floor_of_its_own():
    losses = falling(300, 0.3, 0.02)
    losses[250] *= 3
    assert [f.step for f in spikes(losses) if f.level == "warn"] == [251]


def test_what_is_no_number_changes_nothing():
    losses = falling(200)
    odd = [None, math.nan, math.inf, 0.0, -1.0, "x", True]
    with_odd = [v for loss in losses for v in (loss, *odd)]
    detector, plain = LossSpikeDetector(), LossSpikeDetector()
    for i, v in enumerate(with_odd):
        assert detector.update(i, v) is None
    for i, v in enumerate(losses):
        plain.update(i, v)
    assert (detector.level, detector.noise, detector.accepted) == (plain.level, plain.noise, plain.accepted)


def zeros(losses, norms=None, **options):
    detector = ZeroLossDetector(**options)
    norms = norms or [None] * len(losses)
    return [f for i, (v, n) in enumerate(zip(losses, norms, strict=True), 1) if (f := detector.update(i, v, n))]


def test_zeros_out_of_nothing_are_told_once_and_rounded_ones_are_not():
    (found,) = zeros([0.48, 0.47, *[0.0] * 50])
    assert (found.name, found.action, found.evidence["since"]) == ("zero_loss", "kill", 3)
    assert zeros([*[0.01, 0.004, 0.002, 0.001, 0.0004], *[0.0] * 50]) == []
    assert zeros([0.2, 0.04, *[0.0] * 20], [3.0, 1.0, *[1e-4] * 20]) == []  # the norm vouches for it
    (masked,) = zeros([0.0] * 10, [0.0] * 10)
    assert "gradient norm" in masked.text
    assert zeros([0.5, 0.0, 0.0, 0.6, 0.0, 0.5] * 5) == []


def shape(losses, every=1, rates=None, epochs=None, **options):
    detector = LossShapeDetector(logging_steps=every, **options)
    for i, loss in enumerate(losses):
        detector.update((i + 1) * every, loss, epochs[i] if epochs else None, rates[i] if rates else None)
    return {f.name: f for f in detector.finish(len(losses) * every) if not f.name.endswith("_over")}


def test_flat_and_what_is_not_flat():
    draw = random.Random(3)
    still = [4.69 + draw.gauss(0, 0.02) for _ in range(35)]
    found = shape(still, 20)
    assert found["flat"].action == "kill" and found["flat"].evidence["since"] == 20
    slow = [2.35 - 0.38 * i / 400 + draw.gauss(0, 0.04) for i in range(400)]  # a fall of 16 %
    assert "flat" not in shape(slow, 5)
    warm = [4.69 + draw.gauss(0, 0.02) for _ in range(40)]
    assert "flat" not in shape(warm, 1, rates=[1e-9 * (i + 1) for i in range(40)])  # the warm-up is not over
    assert "flat" not in shape([0.1 + draw.gauss(0, 0.001) for _ in range(100)])
    wild = [2.0 * math.exp(draw.gauss(0, 0.4)) for _ in range(40)]
    assert "flat" not in shape(wild)  # a fall of 5 % could not be seen


def test_jitter_says_whether_it_falls():
    draw = random.Random(4)
    wild = [(1.6 - 0.6 * i / 200) * math.exp(draw.gauss(0, 0.3)) for i in range(200)]
    assert shape(wild)["jitter"].evidence["falls"] is True
    level = [0.7 * math.exp(draw.gauss(0, 0.3)) for _ in range(200)]
    assert shape(level)["jitter"].evidence["falls"] is False
    assert "jitter" not in shape(falling(200, noise=0.12))
    small = falling(100, 2.0, 0.05) + [0.05 * math.exp(draw.gauss(0, 0.4)) for _ in range(100)]
    assert "jitter" not in shape(small)


def test_a_slow_climb_is_a_divergence_and_a_spike_is_none():
    climb = falling(200) + [0.8 + 0.003 * i for i in range(400)]
    found = shape(climb)["diverged"]
    assert found.action == "kill" and 150 <= found.evidence["since"] <= 260
    back = falling(600)
    back[300:320] = [3.0] * 20
    assert "diverged" not in shape(back)


def test_memorised_and_drifting_up():
    draw = random.Random(6)
    down = [2.0 * math.exp(-i / 6) + 0.03 for i in range(40)]
    drift = [0.03 * (1 + 1.5 * i / 20) * math.exp(draw.gauss(0, 0.15)) for i in range(20)]
    assert "overfit_suspect" in shape(down + drift)
    stays = [0.03 * math.exp(draw.gauss(0, 0.15)) for _ in range(20)]
    assert "overfit_suspect" not in shape(down + stays)


def test_plateau_is_a_note_on_a_run_that_learnt():
    found = shape(falling(50, 5.0, 2.0) + falling(450, 2.0, 2.0, seed=2))
    assert found["plateau"].level == "info" and "flat" not in found


def test_the_noise_of_blocks_is_the_standard_deviation():
    draw = NormalDist(0, 0.1).samples(20_000, seed=5)
    store = LossBlocks()
    for i, v in enumerate(draw):
        store.push(i, math.exp(v))
    assert len(store.all()) <= store.MOST and 0 <= 20_000 - sum(b.rows for b in store.all()) < store.size / 2
    middle = sorted(b.noise for b in store.all())[len(store.all()) // 2]
    assert middle == pytest.approx(0.1, rel=0.05)


def memorising(levels, per_epoch=100):
    draw = random.Random(8)
    detector, store, rows = (
        EpochStepsDetector(),
        LossBlocks(),
        [a + draw.gauss(0, 0.01) for a in levels for _ in range(per_epoch)],
    )
    found = []
    for i, loss in enumerate(rows, 1):
        found.append(detector.update(i, loss, i / per_epoch))
        store.push(i, loss, i / per_epoch)
    found.append(detector.finish(len(rows)))
    return [f for f in found if f], stairs(len(rows), store.all(), store.size, [])


def test_steps_at_the_borders_of_epochs_are_memorising_and_not_stairs():
    (found,), unshuffled = memorising([1.2, 0.8, 0.4])
    assert [border[0] for border in found.evidence["borders"]] == [101, 201] and unshuffled is None
    assert memorising([1.2, 1.2, 1.2]) == ([], None)


def test_steps_elsewhere_up_and_down_are_unshuffled_data():
    draw, store = random.Random(9), LossBlocks()
    for i in range(400):
        store.push(i, [1.2, 0.8, 1.1, 0.6][i // 100] * math.exp(draw.gauss(0, 0.03)), i / 400)
    found = stairs(400, store.all(), store.size, [])
    assert (
        found.name == "stairs" and len(found.evidence["steps"]) == 3 and found.suggest == {"disable_shuffling": False}
    )
    smooth = LossBlocks()
    for i, loss in enumerate(falling(400)):
        smooth.push(i, loss, i / 400)
    assert stairs(400, smooth.all(), smooth.size, []) is None


def test_a_schedule_is_not_needed():
    assert shape(falling(100), rates=schedule(100)).keys() <= {"plateau"}
