import math

import pytest

from llamafactory_obs.detect import BandDetector


def feed(pairs, detector=None, first=1):
    detector = detector or BandDetector()
    return [detector.update(i, top, bottom) for i, (top, bottom) in enumerate(pairs, first)]


def said(pairs, detector=None):
    return [(f.step, f.level, f.name) for f in feed(pairs, detector) if f]


def test_a_share_inside_is_quiet_and_one_outside_warns_once():
    assert said([(300, 1000)] * 300) == []
    assert said([(600, 1000)] * 300) == [(10, "warn", "supervised_ratio_high")]
    assert said([(100, 1000)] * 300) == [(10, "warn", "supervised_ratio_low")]


def test_the_edges_belong_to_the_range():
    assert said([(200, 1000)] * 60) == []
    assert said([(400, 1000)] * 60) == []


def test_it_weighs_by_tokens_not_by_steps():
    pairs = [(9, 10), (280, 1000)] * 30  # mean of ratios 0.59, share of tokens 0.286
    detector = BandDetector()
    assert said(pairs, detector) == []
    assert detector.value == pytest.approx(289 / 1010)


def test_nothing_is_said_before_ten_steps():
    assert said([(900, 1000)] * 9) == []


def test_it_is_closed_on_return_and_a_second_excursion_is_news():
    pairs = [(300, 1000)] * 60 + [(600, 1000)] * 60 + [(300, 1000)] * 60 + [(0, 1000)] * 60
    found = said(pairs)
    assert [f[1:] for f in found] == [
        ("warn", "supervised_ratio_high"),
        ("info", "supervised_ratio_back"),
        ("warn", "supervised_ratio_low"),
    ]
    assert 60 < found[0][0] <= 120 < found[1][0] <= 180 < found[2][0]


def test_a_share_that_lies_on_the_edge_does_not_flicker():
    pairs = [(405, 1000) if (i // 50) % 2 else (395, 1000) for i in range(2000)]
    assert len(said(pairs)) == 1


def test_a_jump_from_above_to_below_is_told():
    detector = BandDetector(window=10, min_steps=10)
    names = [name for _, _, name in said([(900, 1000)] * 20 + [(0, 100_000)] * 20, detector)]
    assert names == ["supervised_ratio_high", "supervised_ratio_low"]


@pytest.mark.parametrize(
    "pair", [(None, 10), (10, None), (math.nan, 10), (10, math.inf), (-1, 10), (5, 0), (5, -10), ("3", "10")]
)
def test_unusable_steps_are_left_out(pair):
    detector = BandDetector()
    assert said([pair] * 50, detector) == []
    assert detector.value is None
    assert said([(300, 1000), pair] * 50, detector) == []
    assert detector.value == 0.3


def test_sums_stay_exact_over_a_long_run_and_memory_bounded():
    detector = BandDetector(window=20)
    feed([(300 + i % 7, 1000 + i % 11) for i in range(20_000)], detector)
    assert detector._top == sum(300 + i % 7 for i in range(19_980, 20_000))
    assert len(detector._pairs) == 20


@pytest.mark.parametrize("cut", [5, 65, 90, 130])
def test_replay_restores_the_state(cut):
    pairs = [(300, 1000)] * 60 + [(600, 1000)] * 60 + [(300, 1000)] * 60
    whole, resumed = feed(pairs), BandDetector()
    feed(pairs[:cut], resumed)
    assert feed(pairs[cut:], resumed, first=cut + 1) == whole[cut:]
    assert any(whole[cut:])


def test_the_evidence_and_the_name_are_those_of_the_caller():
    detector = BandDetector(0.0, 0.1, name="padding_ratio", label="share of padding", advice="Pack.")
    finding = next(f for f in feed([(500, 1000)] * 10, detector) if f)
    assert finding.name == "padding_ratio_high"
    assert finding.text.endswith("Pack.")
    assert finding.evidence["ratio"] == 0.5
    assert finding.evidence["steps"] == 10


@pytest.mark.parametrize("options", [{"low": 0.5}, {"min_steps": 99}, {"margin": 0.6}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError):
        BandDetector(**options)
