import json
import math

import pytest

from llamafactory_obs.detect import NonFiniteDetector

NAN, INF = math.nan, math.inf


def feed(rows, detector=None, first=1, **flags):
    detector = detector or NonFiniteDetector()
    return [detector.update(i, norm, loss, **flags) for i, (norm, loss) in enumerate(rows, first)]


def said(rows, detector=None, **flags):
    return [(f.step, f.level, f.name) for f in feed(rows, detector, **flags) if f]


def test_grad_7_one_dead_finding_not_ten():
    rows = [(NAN, 1.0778)] + [(NAN, 0.0)] * 10
    assert said(rows) == [(1, "error", "nan")]
    finding = feed(rows)[0]
    assert finding.action == "kill"
    assert "dead since step 1" in finding.text
    assert "attention backend" in finding.text


def test_grad_7_after_good_steps_names_the_first_bad_one_and_never_calls_it_convergence():
    finding = next(f for f in feed([(8.0, 0.9)] * 50 + [(NAN, 0.0)] * 5) if f)
    assert (finding.step, finding.evidence["since"]) == (51, 51)
    assert "not convergence" in finding.text


def test_grad_8_an_isolated_skip_under_a_scaler_is_only_info():
    assert said([(0.164, 0.9), (NAN, 0.9), (0.171, 0.9), (0.158, 0.9)], scaler_active=True) == [
        (2, "info", "skipped_step")
    ]


def test_grad_8_thirty_in_a_row_under_a_scaler_are_dead():
    rows = [(0.16, 0.9)] * 5 + [(NAN, 0.9)] * 30
    assert said(rows, scaler_active=True) == [(6, "info", "skipped_step"), (15, "error", "nan")]
    finding = feed(rows, scaler_active=True)[14]
    assert "since step 6" in finding.text
    assert finding.suggest == {"fp16": False, "bf16": True}


def test_grad_8_without_a_scaler_it_is_dead_at_once():
    assert said([(0.164, 0.9), (NAN, 0.9)], scaler_active=False)[0] == (2, "error", "nan")


def test_the_first_scale_search_of_a_healthy_fp16_run_is_no_alarm():
    rows = [(INF, 2.0)] * 6 + [(1.0, 2.0)] * 20 + [(INF, 2.0)] + [(1.0, 2.0)] * 20
    assert said(rows, scaler_active=True) == [(1, "info", "skipped_step"), (27, "info", "skipped_step")]


def test_a_bad_step_that_the_scaler_let_through_is_dead_at_once():
    assert said([(1.0, 2.0), (NAN, 2.0)], scaler_active=True, step_skipped=False) == [(2, "error", "nan")]


def test_a_step_known_to_be_skipped_is_info_without_a_scaler_too():
    assert said([(1.0, 2.0), (INF, 2.0), (1.0, 2.0)], step_skipped=True) == [(2, "info", "skipped_step")]


def test_loss_1_the_norm_tells_what_the_filtered_loss_hides():
    rows = [(0.4, 10.8195), (NAN, 17.3098), (NAN, 0.0), (NAN, 0.0)]
    assert said(rows) == [(2, "error", "nan")]
    assert said(rows, scaler_active=None) == [(2, "warn", "nan"), (3, "error", "nan")]


def test_a_non_finite_loss_is_seen_without_any_norm():
    assert said([(None, 1.0), (None, INF), (None, NAN)]) == [(2, "error", "inf")]
    assert "the loss is infinite" in feed([(None, INF)])[0].text


def test_infinity_is_named_apart_from_nan():
    assert said([(INF, 1.0)]) == [(1, "error", "inf")]
    assert said([(-INF, 1.0)]) == [(1, "error", "inf")]
    assert said([(INF, NAN)]) == [(1, "error", "nan")]


def test_finite_values_that_return_close_it_once_after_three_steps():
    rows = [(NAN, 1.0)] * 3 + [(1.0, 1.0)] * 10
    assert said(rows) == [(1, "error", "nan"), (6, "info", "finite_again")]


def test_values_that_flicker_are_one_finding():
    assert said([(NAN, 1.0), (1.0, 1.0)] * 20) == [(1, "error", "nan")]


def test_a_filtered_loss_cannot_vouch_for_a_step_without_norm():
    assert said([(NAN, 0.0)] + [(None, 0.9)] * 10) == [(1, "error", "nan")]
    assert said([(None, NAN)] + [(None, 0.0)] * 10) == [(1, "error", "nan")]
    assert said([(None, NAN)] + [(None, 0.9)] * 3) == [(1, "error", "nan"), (4, "info", "finite_again")]


def test_unknown_precision_waits_before_it_calls_a_run_dead():
    assert said([(1.0, 0.9), (INF, 0.9), (1.0, 0.9)] * 5, scaler_active=None) == [
        (3 * k + 2, "warn", "inf") for k in range(5)
    ]
    assert said([(NAN, 0.9)] * 9, scaler_active=None) == [(1, "warn", "nan"), (3, "error", "nan")]


@pytest.mark.parametrize(
    "row", [(None, None), (0.0, 0.0), (1.0, 2.0), (None, 0.0), (-1.0, -5.0), ("nan", "x"), (True, None)]
)
def test_missing_and_ordinary_values_are_no_finding(row):
    assert said([row] * 30) == []


@pytest.mark.parametrize("flags", [{}, {"scaler_active": True}, {"scaler_active": None}])
@pytest.mark.parametrize("cut", [1, 4, 8, 17])
def test_replay_restores_the_state(cut, flags):
    rows = [(1.0, 1.0)] * 3 + [(NAN, 1.0)] * 12 + [(1.0, 1.0)] * 5 + [(INF, 1.0)] * 12
    whole, resumed = feed(rows, **flags), NonFiniteDetector()
    feed(rows[:cut], resumed, **flags)
    assert feed(rows[cut:], resumed, first=cut + 1, **flags) == whole[cut:]
    assert any(whole[cut:])


def test_findings_are_strict_json():
    for finding in filter(None, feed([(NAN, INF), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)])):
        json.dumps(finding.to_dict(), allow_nan=False)
    assert feed([(NAN, -INF)])[0].evidence["loss"] == "-inf"


def test_patience_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        NonFiniteDetector(patience=0)
