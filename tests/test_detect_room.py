"""Room that runs out and a card that is slowed down."""

import pytest

from llamafactory_obs.detect import LowRoomDetector, ThrottledDetector


def test_low_room_is_said_once_and_ends():
    detector = LowRoomDetector("disk_nearly_full", "free disk", "Delete something.", level="error", limits="no quotas")
    amounts = [5.0, 2.0, 1.9, 0.5, 2.1, 2.4, 2.5, 1.0]
    found = [detector.update(step, amount, 2.0, {"save_total_limit": 1}) for step, amount in enumerate(amounts, 1)]
    named = [(f.step, f.name, f.level) for f in found if f]
    assert named == [
        (3, "disk_nearly_full", "error"),
        (7, "disk_nearly_full_over", "info"),
        (8, "disk_nearly_full", "error"),
    ]
    assert found[2].suggest == {"save_total_limit": 1} and "1.90 GiB left, wanted 2.00" in found[2].text
    assert found[2].limits == "no quotas"


@pytest.mark.parametrize("amount", [None, float("nan"), True])
def test_an_unknown_amount_is_no_alert(amount):
    assert LowRoomDetector("x", "x", "").update(1, amount, 2.0) is None


def test_a_floor_of_nothing_never_alarms():
    assert LowRoomDetector("x", "x", "").update(1, 0.0, 0.0) is None


def run(detector, count, share, *, start=1, seconds=2.0):
    found = [detector.update(step, seconds, share, 88.0) for step in range(start, start + count)]
    return [finding for finding in found if finding]


def test_a_minute_of_throttling_is_said_and_a_moment_is_not():
    detector = ThrottledDetector()
    assert run(detector, 20, 1.0) == [], "40 s"
    (finding,) = run(detector, 20, 1.0, start=21)
    assert finding.name == "gpu_throttled" and finding.step == 30 and "at 88 C" in finding.text
    assert run(detector, 20, 0.5, start=41) == []
    (over,) = run(detector, 40, 0.0, start=61)
    assert over.name == "gpu_throttled_over" and over.level == "info"
    control = ThrottledDetector()
    for start in range(1, 400, 10):  # one step in ten
        assert run(control, 1, 1.0, start=start) == [] and run(control, 9, 0.0, start=start + 1) == []


def test_steps_longer_than_a_minute():
    (finding,) = run(ThrottledDetector(), 10, 0.9, seconds=100.0)
    assert finding.step == 3


@pytest.mark.parametrize("value", [None, float("nan")])
def test_an_unknown_share_is_no_alert(value):
    detector = ThrottledDetector()
    assert run(detector, 100, value) == []
    assert all(detector.update(step, None, 1.0) is None for step in range(100))


@pytest.mark.parametrize("bad", [{"share": 0.1, "over": 0.2}, {"min_seconds": 0}, {"min_steps": 0}])
def test_wrong_arguments(bad):
    with pytest.raises(ValueError):
        ThrottledDetector(**bad)
