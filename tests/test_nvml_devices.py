"""Which card is `cuda:0` (MEM-5): every rule of CUDA_VISIBLE_DEVICES, torch, MIG."""

from types import SimpleNamespace as Row

import pytest
from fake_nvml import GIB, UUIDS, FakeNvml

from llamafactory_obs.gpu.nvml import Nvml
from llamafactory_obs.gpu.visible import parse_visible


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
