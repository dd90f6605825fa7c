"""The values of NVML and every way to fail (MEM-6): alone, in a container, without the library."""

import logging
import subprocess
import sys

import pytest
from fake_nvml import GIB, FakeNvml

from llamafactory_obs.gpu import nvml, processes
from llamafactory_obs.gpu.nvml import Nvml


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def physical(devices):
    """The card behind each device: its NVML index."""
    return [device.handle.index if device.handle else None for device in devices]


def test_processes_of_others_are_named_without_path(monkeypatch):
    monkeypatch.setattr(nvml, "pids_are_ours", lambda: True)
    monkeypatch.setattr("os.getpid", lambda: 4343)
    view = Nvml(FakeNvml(), name_of={4242: "/opt/secret/vllm"}.get)
    assert view.processes(0) == [
        {"pid": 4242, "used": 30 * GIB, "name": "vllm", "own": False},
        {"pid": 4343, "used": None, "name": None, "own": True},
    ]


def test_in_a_container_a_host_pid_is_not_given_a_name(monkeypatch):
    monkeypatch.setattr(processes.os, "readlink", lambda path: "pid:[4026532999]")
    assert processes.process_name(1) is None
    assert [row["own"] for row in Nvml(FakeNvml()).processes(0)] == [None, None]


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlDeviceGetMemoryInfo", "memory"),
        ("nvmlDeviceGetName", "name"),
        ("nvmlSystemGetDriverVersion", "driver"),
        ("nvmlSystemGetCudaDriverVersion", "cuda"),
        ("nvmlDeviceGetMigMode", None),  # NotSupported on most cards: not a slice
        ("nvmlDeviceGetPciInfo", None),
    ],
)
def test_each_value_fails_alone(function, lost, caplog):
    caplog.set_level(logging.DEBUG)
    view = Nvml(FakeNvml(broken={function}))
    for _ in range(3):
        got = {
            "memory": view.memory(0),
            "name": view.name(0),
            "driver": view.driver_version(),
            "cuda": view.cuda_driver_version(),
        }
    assert [key for key, value in got.items() if value is None] == ([lost] if lost else [])
    if lost:
        assert any("NoPermission: Insufficient Permissions" in text for text in view.errors.values())
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records)  # one line each


def test_a_forbidden_process_list_is_unknown_not_empty():
    broken = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"}
    assert Nvml(FakeNvml(broken=broken)).processes(0) is None


def test_a_card_without_access_keeps_its_place(monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # whether it is like the others cannot be told
    fake = FakeNvml()
    fake.nvmlDeviceGetHandleByIndex = lambda index: fake.cards[index] if index != 1 else 1 / 0
    view = Nvml(fake)
    assert physical(view.devices_for_process("1,2")) == [None, 2]
    assert view.memory(0) is None and view.memory(1)["used"] == 3 * GIB


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_failing_library_is_one_debug_line(broken, caplog):
    caplog.set_level(logging.DEBUG)
    view = Nvml(FakeNvml(broken={broken}))
    assert view.devices_for_process() == [] and view.devices_for_process("MIG-1") is not None
    assert view.memory(0) is None and view.processes(0) is None and view.name(0) is None
    assert len([record for record in caplog.records if record.levelno > logging.DEBUG]) == 0
    if broken == "nvmlInit":
        assert "NoPermission" in view.reason and view.driver_version() is None
        assert len(caplog.records) == 1 and view._provider.calls.count("nvmlInit") == 1


def test_without_the_library_there_is_a_reason_and_no_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    view = Nvml()
    assert view.devices_for_process("0") == [] and "nvidia-ml-py" in view.reason
    assert view.driver_version() is None and view.cuda_driver_version() is None


def test_bytes_and_versions_are_text():
    view = Nvml(FakeNvml(as_bytes=True))
    assert (view.name(0), view.driver_version(), view.cuda_driver_version()) == ("NVIDIA H200", "570.86.15", "12.8")


def test_nothing_is_asked_before_it_is_needed():
    fake = FakeNvml()
    view = Nvml(fake)
    assert fake.calls == []
    view.driver_version()
    assert "nvmlDeviceGetCount" not in fake.calls


def test_importing_it_loads_neither_torch_nor_the_library():
    code = (
        "import sys, llamafactory_obs.gpu.nvml; print([m for m in ('torch', 'pynvml', 'psutil') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_real_library_never_raises():
    """On any machine: with a card, without one, without the library."""
    view = Nvml()
    devices = view.devices_for_process()
    assert devices or view.reason
    for device in devices:
        memory = view.memory(device.logical)
        assert memory is None or 0 <= memory["used"] <= memory["total"]
        assert view.processes(device.logical) is None or isinstance(view.processes(device.logical), list)
