"""`system` as a callback: rows of real runs, alerts over fake cards, ranks, and that nothing of the run changes."""

import os
import threading
import time

import psutil
import pytest
import torch
from fake_nvml import FakeNvml, GpuIsLost
from system_run import Run
from transformers import TrainerCallback

from llamafactory_obs import System, load_record
from llamafactory_obs.callbacks import system
from llamafactory_obs.callbacks.context import RunContext
from llamafactory_obs.callbacks.pipeline import Row
from llamafactory_obs.gpu.nvml import Nvml

HOST = (
    "cpu_percent",
    "process_ram_gib",
    "disk_read_mib_s",
    "disk_write_mib_s",
    "host_cpu_percent",
    "host_disk_mib_s",
    "net_mib_s",
    "ram_available_gib",
    "disk_free_gib",
)
GIB = 1 << 30


@pytest.fixture
def start(monkeypatch, tmp_path):
    """`start(fake, run, **options)`: a callback over a fake card and 8 CPUs; its thread is ended afterwards."""
    begun = []
    monkeypatch.setattr(system, "usable_cpus", lambda group: 8.0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(fake, run=None, **options):
        monkeypatch.setattr(system, "Nvml", lambda: Nvml(fake))
        callback = System(**options)
        callback.run, callback.context = run or Run(tmp_path), RunContext()
        begun.append(callback)
        callback.begin()
        callback._sampler._over.set()  # the test itself says when a reading is made
        callback._sampler._thread.join()
        return callback

    yield make
    for callback in begun:
        callback.off()


def one_step(callback, step, seconds=1.0, **values):
    run = callback.run
    run.step, run.open_row = step, Row(step)
    callback._sampler._read()
    callback.step()
    run.open_row.values |= values
    run.open_row.time = 1000.0 + seconds * step
    run.last = run.open_row
    callback.row(run.open_row)
    return run.open_row.values


def names(callback):
    return [finding.name for finding in callback.run.alerts]


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_the_columns_of_a_gpu(start):
    fake = FakeNvml()
    fake.counted = {2: 0.0, 3: 0.0, 20: 0.0, 21: 0.0}
    callback = start(fake, interval=60.0)
    values = one_step(callback, 1)
    missing = {key.name for key in System.keys} - set(values)
    assert missing <= {"system/host_disk_mib_s"}, "every declared column"
    assert set(values) <= {key.name for key in System.keys}, "and no other"
    fake.util, fake.heat = 13, 80
    callback._sampler._read()
    fake.util, fake.heat = 33, 70
    values = one_step(callback, 2)
    assert values["system/gpu_util"] == pytest.approx((0.13 + 0.33) / 2), "the mean of the step's samples"
    assert values["system/gpu_temperature_c"] == 80, "the highest"
    assert callback.run.events == [], "nothing is missing: nothing is said"
    assert callback.summary().keys() == {"gpu_util", "gpu_temperature_c", "cpu_percent", "ram_available_gib"}


def test_another_rank_of_the_node_reads_its_own_card_and_processes_only(start, tmp_path):
    values = one_step(start(FakeNvml(), Run(tmp_path, "cuda:1", local_process_index=1)), 1)
    assert "system/gpu_util" in values and "system/cpu_percent" in values
    node = {f"system/{name}" for name in HOST[4:]}
    assert not node & set(values)


@pytest.mark.parametrize("fake", [FakeNvml(broken={"nvmlInit"}), FakeNvml(mig={0})])
def test_a_card_without_numbers_is_one_note_and_no_alert(start, fake):
    callback = start(fake)
    for step in range(1, 120):
        values = one_step(callback, step)
    assert not any("gpu" in name or "pcie" in name for name in values) and "system/cpu_percent" in values
    ((kind, title, text, _),) = callback.run.events
    assert (kind, title) == ("note", "sources") and "no GPU columns" in text and callback.run.alerts == []


def test_a_real_run_has_every_number_in_every_row_and_leaves_no_thread(train):
    record = load_record(train(callbacks=[{"system": {"interval": 0.2}}], max_steps=5, dataloader_num_workers=2))
    for name in HOST:
        if f"system/{name}" in record.steps or name != "host_disk_mib_s":  # a machine without a disk of its own
            assert None not in record.steps[f"system/{name}"], name
    assert not [name for name in record.steps if name.startswith(("system/gpu", "system/sm", "system/pcie"))]
    notes = [event for event in record.events if event["name"] == "system"]
    assert [(note["kind"], note["level"]) for note in notes] == [("note", "info")] and "no CUDA" in notes[0]["text"]
    assert not [thread for thread in threading.enumerate() if thread.name == "llamafactory-obs-system"]
    assert all(0 < x < 100 for x in record.steps["system/process_ram_gib"])


@pytest.mark.slow
def test_two_ranks_are_one_row(model, data, tmp_path):
    from test_ranks import torchrun
    from tiny import tiny_config

    config = tiny_config(model, data, tmp_path / "two", callbacks=[{"system": {"interval": 0.1}}], max_steps=5)
    done = torchrun("train", config)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    record = load_record(tmp_path / "two")
    assert not [event for event in record.events if event["kind"] == "callback_off"]
    assert all(None not in column for name, column in record.steps.items() if name.startswith("system/"))
    assert {f"system/{name}" for name in HOST} - set(record.steps) <= {"system/host_disk_mib_s"}
    total = psutil.virtual_memory().total / GIB
    assert all(0 < left < total for left in record.steps["system/ram_available_gib"]), "the node's, once"


class Work(TrainerCallback):
    """In step 3: a second of CPU in a child, and 16 MiB into a file; what the process itself used, by its own clock."""

    def __init__(self, folder):
        self.folder, self.used = folder, 0.0

    def on_step_begin(self, args, state, control, **kwargs):
        import subprocess
        import sys

        if state.global_step == 2:
            with open(self.folder / "big", "wb") as file:
                file.write(os.urandom(16 << 20))
                os.fsync(file.fileno())
            code = "import time\nwhile time.process_time() < 1.0: pass"
            subprocess.run([sys.executable, "-c", code], check=True)

    def on_train_begin(self, args, state, control, **kwargs):
        self.cpu, self.io = self._cpu(), self._io()

    def on_train_end(self, args, state, control, **kwargs):
        self.cpu, self.io = self._cpu() - self.cpu, self._io() - self.io

    @staticmethod
    def _cpu() -> float:
        return sum(os.times()[:4])

    @staticmethod
    def _io() -> float:
        with open("/proc/self/io", encoding="ascii") as file:
            return int(next(line for line in file if line.startswith("write_bytes")).split()[1]) / 2**20


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs Linux's /proc")
def test_a_real_run_s_cpu_and_writes_against_the_kernel_s_own_totals(train, tmp_path):
    work = Work(tmp_path)
    options = {"system": {"interval": 0.1}}
    record = load_record(train(callbacks=[options, "throughput"], max_steps=6, extra_callbacks=[work]))
    seconds = record.steps["time/step_s"]

    def total(name):
        return sum(rate * s for rate, s in zip(record.steps[f"system/{name}"], seconds, strict=True))

    assert total("cpu_percent") / 100 == pytest.approx(work.cpu, rel=0.35)
    assert total("cpu_percent") / 100 > 1.0
    if work.io > 15:  # else a file system in memory
        assert total("disk_write_mib_s") == pytest.approx(work.io, rel=0.4)


def test_nothing_of_the_run_changes(train):
    from safetensors.torch import load_file

    shared = {"max_steps": 4, "dataloader_num_workers": 1}
    without = load_file(train(**shared) / "model.safetensors")
    with_it = load_file(train(callbacks=[{"system": {"interval": 0.1}}], **shared) / "model.safetensors")
    assert all(torch.equal(without[name], with_it[name]) for name in without)


def test_a_broken_source_switches_the_callback_off_and_the_training_goes_on(train, monkeypatch):
    reads = []

    def read(self):
        reads.append(1)
        if len(reads) > 2:
            raise RuntimeError("planted")
        return {"cpu_percent": 1.0}

    class Nap(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            time.sleep(0.15)

    monkeypatch.setattr(system.HostLoad, "read", read)
    record = load_record(train(callbacks=[{"system": {"interval": 0.1}}], extra_callbacks=[Nap()]))
    off = [event["text"] for event in record.events if event["kind"] == "callback_off"]
    assert len(off) == 1 and "planted" in off[0] and record.steps["step"] == [1, 2, 3, 4, 5, 6]


# ---- alerts ---------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"interval": 0}, "interval must be at least 0.1"),
        ({"low_util": 80}, "low_util must be from 0 to 1, got 80"),
        ({"ram_margin_gib": -1}, "ram_margin_gib must not be negative"),
        ({"disk_margin_gib": -0.5}, "disk_margin_gib must not be negative"),
        ({"interval": "1"}, "interval must be a number"),
    ],
)
def test_wrong_options(option, words):
    with pytest.raises(ValueError, match=words):
        System(**option)
