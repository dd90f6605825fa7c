"""Findings that rest on the whole record: a rate that is too high, time that goes elsewhere, a state that was lost."""

import random

from log_curves import STEPS, found, log, noisy

from llamafactory_obs.diagnosis.causes import causes
from llamafactory_obs.diagnosis.from_record import from_record


def rough(jumps: int = 4, first: int = 6) -> list[float]:
    """A loss that falls and jumps up by 0.6 nats at every third step from a row on."""
    loss = [3.0 - 0.015 * step for step in range(STEPS)]
    for place in range(jumps):
        loss[first + 3 * place] += 0.6
    return loss


def fast(rate: float = 0.04, update: float = 0.08, jumps: int = 4, first: int = 6):
    updates = [update if step == 10 else None for step in range(1, STEPS + 1)]
    curves = log(rough(jumps, first), train_lr=[rate] * STEPS, train_update_ratio=updates)
    curves.run = {"model": {"parameters": {"total": 10**6, "trainable": 10**6}}}
    return curves


def test_a_rate_that_the_model_does_not_stand():
    curves = fast()
    (finding,) = from_record(curves, [])
    assert finding.name == "lr_anomaly" and finding.evidence["since"] == 7 and finding.evidence["rises"] == 4
    assert finding.suggest == {"learning_rate": 0.001}  # 0.003239 - 0.0001395 ln(1e6) = 0.0013
    assert causes(curves, finding)[0].name == "lr_too_high"


def test_each_of_the_three_signs_is_needed():
    for other in (fast(rate=0.008), fast(update=0.02), fast(jumps=1), fast(first=40)):
        assert from_record(other, []) == []
    unknown = fast()
    unknown.run = {}
    assert from_record(unknown, []) == []
    said = found("diverged", step=STEPS)
    assert from_record(fast(), [said]) == []  # a graver finding has said it


def timed(part: float, rows: int = STEPS, compute: float = 0.5, every: int = 1):
    draw = random.Random(1)
    other = [(part if row % every == 0 else 0.0) * draw.uniform(0.9, 1.1) for row in range(rows)]
    whole = [compute + value for value in other]
    return log(noisy(rows), time_step_s=whole, time_checkpoint_s=other, time_forward_s=[compute] * rows)


def test_time_that_goes_elsewhere_from_the_start():
    curves = timed(0.5)
    (finding,) = from_record(curves, [])
    assert finding.name == "throughput_drop" and finding.evidence["part"] == "time/checkpoint_s"
    assert 0.48 <= finding.evidence["share"] <= 0.52 and finding.evidence["since"] == 2
    assert causes(curves, finding)[0].name == "checkpoint_saving"
    assert from_record(timed(0.1), []) == []
    assert from_record(timed(0.5, rows=20), []) == []  # too short to say
    assert from_record(timed(0.005, compute=0.005), []) == []  # a second in all
    assert from_record(timed(20.0, every=40), []) == []  # three long pauses, not every step
    drop = found("throughput_drop", step=60)
    assert from_record(curves, [drop]) == []


def test_an_empty_log():
    assert from_record(log([]), []) == []
