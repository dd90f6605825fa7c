"""NVML's view of the card (MEM-5, MEM-6): a fake library, every rule of CUDA_VISIBLE_DEVICES, every way to fail."""

import logging
import subprocess
import sys
from types import SimpleNamespace as Row

import pytest

from llamafactory_obs.gpu import nvml, processes
from llamafactory_obs.gpu.nvml import Nvml
from llamafactory_obs.gpu.visible import parse_visible

GIB = 2**30
UUIDS = [f"GPU-{n}a88aa00-0000-1111-2222-33333333333{n}" for n in range(4)]


class NoPermission(Exception):
    def __str__(self):
        return "Insufficient Permissions"


class FakeNvml:
    """pynvml's functions over plain rows; `broken` names functions that raise."""

    def __init__(self, names=("NVIDIA H200",) * 4, mig=(), broken=(), as_bytes=False):
        self.cards = [
            Row(index=i, name=n, uuid=UUIDS[i], pci=f"00000000:{i + 1:02X}:00.0", total=(i + 1) * 10 * GIB)
            for i, n in enumerate(names)
        ]
        if len(set(names)) == 1:
            for card in self.cards:
                card.total = 140 * GIB
        self.mig, self.broken, self.as_bytes, self.calls = set(mig), set(broken), as_bytes, []
        self.running = [Row(pid=4242, usedGpuMemory=30 * GIB), Row(pid=4343, usedGpuMemory=None)]

    def __getattribute__(self, name):
        if name.startswith("nvml"):
            self.calls.append(name)
            if name in self.broken:
                raise NoPermission
        return object.__getattribute__(self, name)

    def _text(self, value):
        return value.encode() if self.as_bytes else value

    def nvmlInit(self): ...

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-fe59aaaa-0000-0000-0000-000000000000":
            raise NoPermission
        return Row(index="mig", name="NVIDIA H200 MIG 1g.18gb", uuid=uuid)

    def nvmlDeviceGetName(self, card):
        return self._text(card.name)

    def nvmlDeviceGetUUID(self, card):
        return self._text(card.uuid)

    def nvmlDeviceGetPciInfo(self, card):
        return Row(busId=self._text(card.pci))

    def nvmlDeviceGetMemoryInfo(self, card):
        return Row(total=card.total, used=(card.index + 1) * GIB, free=card.total - (card.index + 1) * GIB)

    def nvmlDeviceGetMigMode(self, card):
        return [1, 1] if card.index in self.mig else [0, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, card):
        return self.running

    def nvmlDeviceGetGraphicsRunningProcesses(self, card):
        return [Row(pid=4242, usedGpuMemory=GIB)]

    def nvmlSystemGetDriverVersion(self):
        return self._text("570.86.15")

    def nvmlSystemGetCudaDriverVersion(self):
        return 12080


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def physical(devices):
    """The card behind each device: its NVML index."""
    return [device.handle.index if device.handle else None for device in devices]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, [0, 1, 2, 3]),
        ("3,1", [3, 1]),
        (" 2 , 0 ", [2, 0]),
        ("GPU-2a88", [2]),
        ("gpu-2a88", []),  # CUDA wants the prefix in capitals
        (f"{UUIDS[3]},{UUIDS[0]}", [3, 0]),
        (UUIDS[1].upper(), [1]),
        ("GPU-", []),  # matches four cards: ambiguous
        ("GPU-ffff", []),
        ("GPU-1a88,GPU-ffff,GPU-0a88", [1]),  # the first unknown id ends the list
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("NoDevFiles", []),
        ("0,9,1", [0]),
        ("1,1", []),  # CUDA: a repeated entry shows no device
        (f"GPU-1a88,{UUIDS[1]}", []),  # the same card under two names
        ("1,GPU-2a88", [1]),
        ("2gpu", [2]),  # strtoul, like CUDA
    ],
)
def test_the_visible_list_is_mapped_to_cards(value, want):
    view = Nvml(FakeNvml())
    assert physical(view.devices_for_process(value)) == want
    if not want:
        assert view.reason
    assert [device.logical for device in view.devices_for_process(value)] == list(range(len(want)))


def test_memory_is_that_of_the_mapped_card_not_of_the_same_number():
    view = Nvml(FakeNvml())
    view.devices_for_process("3,1")
    assert view.memory(0) == {"total": 140 * GIB, "used": 4 * GIB, "free": 136 * GIB}
    assert view.memory(1)["used"] == 2 * GIB
    assert view.memory(2) is None and view.memory(-1) is None
    assert view.uuid(0) == UUIDS[3] and view.name(0) == "NVIDIA H200"


def test_without_a_call_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2a88")
    assert Nvml(FakeNvml()).memory(0)["used"] == 3 * GIB
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Nvml(FakeNvml()).memory(0) is None


def test_different_cards_are_unknown_by_index_unless_the_order_is_by_bus(monkeypatch):
    fake = FakeNvml(names=("NVIDIA T4", "NVIDIA H200"))
    view = Nvml(fake)
    devices = view.devices_for_process("0")
    assert devices[0].kind == "unknown" and "CUDA_DEVICE_ORDER" in devices[0].reason
    assert view.memory(0) is None and view.processes(0) is None and view.name(0) is None
    assert physical(view.devices_for_process("GPU-1a88")) == [1]  # a UUID is never ambiguous
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert physical(Nvml(fake).devices_for_process("1")) == [1]


def fake_torch(rows, initialized=True):
    cuda = Row(
        is_initialized=lambda: initialized,
        device_count=lambda: len(rows),
        get_device_properties=lambda index: rows[index],
    )
    return Row(cuda=cuda)


def test_torch_tells_different_cards_apart():
    """FASTEST_FIRST: cuda:0 is the H200 on the second bus."""
    fake = FakeNvml(names=("NVIDIA T4", "NVIDIA H200"))
    by_uuid = fake_torch([Row(uuid=UUIDS[1].removeprefix("GPU-")), Row(uuid=UUIDS[0].removeprefix("GPU-"))])
    devices = Nvml(fake, torch=by_uuid).devices_for_process()
    assert physical(devices) == [1, 0] and {device.how for device in devices} == {"uuid"}
    bus = [Row(uuid=None, pci_domain_id=0, pci_bus_id=b, pci_device_id=0) for b in (2, 1)]
    devices = Nvml(fake, torch=fake_torch(bus)).devices_for_process()
    assert physical(devices) == [1, 0] and {device.how for device in devices} == {"pci_bus_id"}
    stranger = Nvml(fake, torch=fake_torch([Row(uuid="ffff")]))
    assert stranger.devices_for_process()[0].kind == "unknown" and stranger.memory(0) is None


def test_torch_is_not_asked_about_another_process_nor_before_cuda_runs():
    torch = fake_torch([Row(uuid=UUIDS[3].removeprefix("GPU-"))])
    assert physical(Nvml(FakeNvml(), torch=torch).devices_for_process("1")) == [1]  # not this process's environment
    torch.cuda.get_device_properties = None  # would raise: it starts CUDA
    torch.cuda.is_initialized = lambda: False
    assert physical(Nvml(FakeNvml(), torch=torch).devices_for_process()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "value",
    ["MIG-fe59aaaa-0000-0000-0000-000000000000", "MIG-fe59", f"MIG-{UUIDS[2]}/5/0", "2"],
)
def test_on_a_mig_slice_the_whole_cards_numbers_are_not_given(value):
    view = Nvml(FakeNvml(mig={2}))
    devices = view.devices_for_process(value)
    assert [device.kind for device in devices] == ["mig"]
    assert view.memory(0) is None and view.processes(0) is None
    assert "torch" in devices[0].reason
    assert view.driver_version() == "570.86.15"


def test_the_older_mig_form_names_its_card():
    entries, _ = parse_visible(f"MIG-{UUIDS[2]}/5/0")
    assert entries[0].mig_parent == (UUIDS[2], 5, 0)
    assert physical(Nvml(FakeNvml(mig={2})).devices_for_process(f"MIG-{UUIDS[2]}/5/0")) == [2]


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
