"""`system` as a callback: its alerts, over fake cards and readings of the RAM."""

import pytest
from fake_nvml import FakeNvml, GpuIsLost
from system_run import Run, names, one_step
from system_run import start as start

from llamafactory_obs.callbacks.pipeline import Row

TIMES = {
    "system/host_cpu_percent": 20.0,
    "time/step_s": 1.0,
    "time/data_wait_s": 0.5,
    "time/forward_s": 0.2,
    "time/backward_s": 0.3,
    "time/gc_s": 0.9,
}


def test_low_utilisation_with_its_reason_from_the_row_and_its_end(start):
    fake = FakeNvml()
    fake.util = 40
    callback = start(fake, interval=60.0)
    for step in range(1, 80):
        one_step(callback, step, **TIMES)
    (finding,) = callback.run.alerts
    assert finding.name == "low_gpu_util" and finding.evidence["reason"] == "data_wait"
    assert finding.evidence["shares"]["data_wait"] == pytest.approx(0.5)
    assert "gc" not in finding.evidence["shares"] and finding.suggest == {"dataloader_num_workers": 7}
    fake.util = 97
    for step in range(80, 180):
        one_step(callback, step, **TIMES)
    assert names(callback) == ["low_gpu_util", "gpu_util_back"]


@pytest.mark.parametrize(("util", "option", "wanted"), [(95, 0.8, []), (40, 0.0, []), (40, 0.3, [])])
def test_no_alert_where_none_is_due(start, util, option, wanted):
    fake = FakeNvml()
    fake.util = util
    callback = start(fake, interval=60.0, low_util=option)
    for step in range(1, 120):
        one_step(callback, step, **TIMES)
    assert names(callback) == wanted


def test_without_throughput_the_clock_of_the_rows_is_taken(start):
    fake = FakeNvml()
    fake.util = 40
    callback = start(fake, interval=60.0)
    for step in range(1, 40):
        one_step(callback, step, seconds=2.0)
    (finding,) = callback.run.alerts
    assert finding.step == 1 + 5 + 30 and "add `throughput`" in finding.text
    assert finding.evidence["reason"] in ("unknown", "others")


def test_an_evaluation_is_left_out_without_throughput_too(start):
    fake = FakeNvml()
    callback, clock = start(fake, interval=60.0), 0.0
    for step in range(1, 200):
        callback.run.open_row = Row(step)
        fake.util = 95
        if step % 50 == 0:
            callback.evaluated({})
            fake.util, clock = 5, clock + 100
        clock += 1
        callback._sampler._read()
        callback.step()
        callback.run.open_row.time = clock
        callback.row(callback.run.open_row)
    assert callback.run.alerts == []


def test_a_resume_s_rows_bring_the_detector_to_where_it_was(start):
    fake = FakeNvml()
    fake.util = 40
    callback = start(fake, interval=60.0)
    callback.run.replaying = True
    for step in range(1, 100):
        values = {"step": step, "time": 50.0 + step, "segment": step // 60, "system/gpu_util": 0.4}
        callback.row(Row(step, values | {"system/ram_available_gib": 0.01, "system/gpu_lost": 1.0}))
    assert names(callback) == ["low_gpu_util"], "the recorder is mute meanwhile"
    callback.run.alerts.clear()
    callback.run.replaying = False
    for step in range(100, 200):
        one_step(callback, step)
    assert names(callback) == [], "reported once; RAM and card of the machine before are no matter"


def test_throttling_for_a_minute(start):
    fake = FakeNvml()
    fake.reasons = 0x40
    callback = start(fake, interval=60.0)
    for step in range(1, 80):
        one_step(callback, step)
    fake.reasons = 0x4  # the power limit: normal
    for step in range(80, 160):
        one_step(callback, step)
    assert names(callback) == ["gpu_throttled", "gpu_throttled_over"]


def test_a_lost_card_is_one_warning(start):
    fake = FakeNvml()
    callback = start(fake, interval=60.0)
    one_step(callback, 1)
    fake.broken, fake.error = {"all"}, GpuIsLost
    for step in (2, 3):
        one_step(callback, step)
    callback.failed(RuntimeError("CUDA error"))
    ((kind, title, text, more),) = callback.run.events
    assert (kind, title, more["level"]) == ("alert", "gpu_lost", "warn") and "last checkpoint" in text


def test_a_card_lost_in_the_step_that_fails(start):
    fake = FakeNvml()
    callback = start(fake, interval=60.0)
    callback.failed(RuntimeError("something else"))
    assert callback.run.events == []
    fake.broken, fake.error = {"all"}, GpuIsLost
    callback._sampler._read()
    callback.failed(RuntimeError("CUDA error"))
    assert [title for _, title, _, _ in callback.run.events] == ["gpu_lost"]


def ram(callback, series):
    for step, gib in enumerate(series, 1):
        callback._judge_ram(step, gib)
    return [(finding.name, finding.level) for finding in callback.run.alerts]


def test_ram_that_is_nearly_gone(start, tmp_path):
    callback = start(FakeNvml(), Run(tmp_path, "cpu"), interval=60.0, ram_margin_gib=2.0)
    assert ram(callback, [9.0, 3.0, 1.9, 1.8, 2.3, 2.6]) == [
        ("ram_nearly_gone", "warn"),
        ("ram_nearly_gone_over", "info"),
    ]
    assert "exit code 137" in callback.run.alerts[0].text


def test_ram_that_grows_is_forecast_and_a_slow_rise_is_not_told(start, tmp_path):
    def grow(rate):
        callback = start(FakeNvml(), Run(tmp_path, "cpu"), interval=60.0, ram_margin_gib=0.0)
        callback._ram_gib, callback._growth.limit = 64.0, 64.0
        found = ram(callback, [40.0 - rate * step for step in range(500)])
        return found, callback.run.alerts

    found, alerts = grow(0.05)  # 64 GiB are full at step 800 of 1000
    assert found == [("ram_growth", "error")] and alerts[0].evidence["limit_at_step"] == pytest.approx(800, rel=0.02)
    assert grow(0.01)[0] == [] and grow(0.0)[0] == []
