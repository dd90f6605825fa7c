import json
import math
import random

import pytest

from llamafactory_obs.detect import GrowthDetector

LIMIT = 39.9


def feed(values, loads=None, detector=None, first=1):
    detector = detector or GrowthDetector(LIMIT, unit="GB")
    loads = loads or [None] * len(values)
    return [detector.update(i, v, load) for i, (v, load) in enumerate(zip(values, loads, strict=True), first)]


def said(values, loads=None, detector=None):
    return [(f.level, f.name) for f in feed(values, loads, detector) if f]


def leak(count=650, per_step=0.006, noise=0.05, start=36.0, seed=0):
    rng = random.Random(seed)
    return [start + per_step * i + rng.gauss(0, noise) for i in range(count)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_mem_2_a_leak_is_found_early_with_the_step_at_which_memory_ends(noise, seed):
    found = [f for f in feed(leak(noise=noise, seed=seed)) if f]
    assert [(f.level, f.name) for f in found] == [("error", "memory_growth")]
    assert found[0].step <= 330
    assert 600 <= found[0].evidence["limit_at_step"] <= 700
    assert f"step {found[0].evidence['limit_at_step']}" in found[0].text


@pytest.mark.parametrize("seed", range(5))
def test_mem_2_control_a_plateau_after_step_50_is_quiet(seed):
    rng = random.Random(seed)
    assert said([36 + 0.05 * min(i, 50) + rng.gauss(0, 0.1) for i in range(3000)]) == []


@pytest.mark.parametrize("seed", range(5))
def test_mem_2_control_stairs_that_come_with_longer_batches_are_quiet(seed):
    rng, top, loads, values = random.Random(seed), 0, [], []
    for i in range(3000):
        loads.append(rng.randint(100, 500 + i // 2))
        top = max(top, loads[-1])
        values.append(36 + 0.0015 * top + rng.gauss(0, 0.03))
    assert said(values, loads) == []


def test_stairs_without_a_known_load_are_quiet_when_they_are_few():
    stairs = [0.8 * (i > 400) + 0.7 * (i > 900) + 0.6 * (i > 1500) for i in range(3000)]
    assert said([a + b for a, b in zip(stairs, leak(3000, 0.0, 0.02), strict=True)]) == []


def test_a_leak_is_found_although_the_batches_differ():
    rng = random.Random(3)
    loads = [rng.randint(100, 2000) for _ in range(650)]
    assert said(leak(), loads) == [("error", "memory_growth")]


def test_a_leak_that_begins_late_is_found_before_it_ends_the_run():
    values = leak(5000, 0.0, 0.05) + leak(650, 0.006, 0.05)
    assert [f.step < 5400 for f in feed(values) if f] == [True]


def test_a_slow_leak_is_found_over_the_whole_run():
    found = [f for f in feed(leak(20_000, 0.0001, 0.1)) if f]
    assert [f.level for f in found] == ["error"]
    assert 30_000 < found[0].evidence["limit_at_step"] < 50_000


@pytest.mark.parametrize("values", [[36.0] * 2000, [36 + (i % 100) * 0.01 for i in range(3000)]])
def test_a_constant_and_a_sawtooth_are_quiet(values):
    assert said(values) == []


def test_growth_that_stops_is_closed():
    values = [36 + 0.006 * min(i, 300) + v for i, v in enumerate(leak(1500, 0.0, 0.03, 0))]
    assert said(values) == [("error", "memory_growth"), ("info", "growth_over")]


def test_without_a_limit_or_with_the_end_before_it_is_a_warning():
    assert said(leak(), detector=GrowthDetector(unit="GB")) == [("warn", "memory_growth")]
    assert said(leak(600), detector=GrowthDetector(LIMIT, unit="GB", total_steps=500)) == [("warn", "memory_growth")]
    assert said(leak(), detector=GrowthDetector(LIMIT, unit="GB", total_steps=5000)) == [("error", "memory_growth")]


def test_bytes_give_the_same_answer_and_are_shown_in_gib():
    gib = next(f for f in feed(leak(), detector=GrowthDetector(LIMIT)) if f)
    values = [v * 2**30 for v in leak()]
    found = next(f for f in feed(values, detector=GrowthDetector(LIMIT * 2**30, unit="bytes")) if f)
    assert found.text == gib.text
    with pytest.raises(ValueError, match="unit"):
        GrowthDetector(unit="MB")


def test_a_new_process_starts_the_observation_anew():
    values = leak(200, 0.006, 0.01)
    detector = GrowthDetector(LIMIT, unit="GB")
    feed(values[:150], detector=detector)
    assert [f for f in feed(values[:150], detector=detector) if f] == []  # step 1 again: 150 steps are too few


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0, "36"])
def test_unusable_values_change_nothing(value):
    detector, clean = GrowthDetector(LIMIT, unit="GB"), GrowthDetector(LIMIT, unit="GB")
    for step, good in enumerate(leak(300)):
        assert detector.update(step, value, 10_000 + step) is None
        assert detector.update(step, good) == clean.update(step, good)


@pytest.mark.parametrize("cut", [30, 100, 177, 290])
def test_replay_restores_the_state(cut):
    values = [36 + 0.006 * min(i, 300) + v for i, v in enumerate(leak(1500, 0.0, 0.03, 0))]
    whole, resumed = feed(values), GrowthDetector(LIMIT, unit="GB")
    feed(values[:cut], detector=resumed)
    assert feed(values[cut:], detector=resumed, first=cut + 1) == whole[cut:]
    assert any(whole[cut:])


def test_memory_stays_bounded():
    detector = GrowthDetector(LIMIT, unit="GB")
    feed(leak(50_000, 0.0, 0.05), detector=detector)
    for view in detector._views:
        assert len(view._blocks) <= 48
        assert len(view._values) == len(view._steps) < 16


def test_findings_are_strict_json():
    finding = next(f for f in feed(leak()) if f)
    json.dumps(finding.to_dict(), allow_nan=False)
    assert finding.suggest["save_steps"] >= 1


@pytest.mark.parametrize("tau", [30, 60])
def test_a_rise_that_levels_off_is_quiet(tau):
    rise = [2 * (1 - math.exp(-i / tau)) for i in range(2000)]
    assert said([a + b for a, b in zip(rise, leak(2000, 0.0, 0.005), strict=True)]) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_few_jumps_on_a_faint_drift_are_no_leak(seed):
    rng = random.Random(seed)
    cuts = [rng.randrange(2000) for _ in range(5)]
    values = [36 + 0.3 * sum(c < i for c in cuts) + 2e-5 * i + rng.gauss(0, 0.002) for i in range(2000)]
    assert said(values) == []
