"""`system` as a callback: its rows of real runs and of fake cards, ranks, and that nothing of the run changes."""

import os
import threading
import time

import psutil
import pytest
import torch
from fake_nvml import FakeNvml
from system_run import Run, one_step
from system_run import start as start
from transformers import TrainerCallback

from llamafactory_obs import System, load_record
from llamafactory_obs.callbacks import system

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
