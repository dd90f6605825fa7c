"""The load of a card through NVML: every value fails alone, MIG, the performance counters (MEM-5, MEM-6)."""

import pytest
from fake_nvml import FakeNvml, GpuIsLost

from llamafactory_obs.gpu import nvml
from llamafactory_obs.gpu.load import GpuLoad
from llamafactory_obs.gpu.nvml import Nvml

ALL = {
    "gpu_util": 0.93,
    "gpu_memory_util": 0.41,
    "gpu_power_w": 512.34,
    "gpu_power_limit_w": 700.0,
    "gpu_temperature_c": 61.0,
    "sm_clock_mhz": 1980.0,
    "gpu_throttled": 0.0,
    "gpu_power_capped": 0.0,
    "pcie_rx_mib_s": 2.0,
    "pcie_tx_mib_s": 0.5,
    "gpu_other_processes": 1.0,
    "gpu_lost": 0.0,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No list of devices; this process is one of the two that the stand-in lists."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "pids_are_ours", lambda: True)
    monkeypatch.setattr("os.getpid", lambda: 4242)


def load(fake: FakeNvml) -> GpuLoad:
    return GpuLoad(Nvml(fake), 0)


def test_every_value_in_its_unit():
    card = load(FakeNvml())
    assert card.reason == "" and card.read() == pytest.approx(ALL)


@pytest.mark.parametrize(
    ("functions", "lost"),
    [
        ({"nvmlDeviceGetUtilizationRates"}, {"gpu_util", "gpu_memory_util"}),
        ({"nvmlDeviceGetPowerUsage"}, {"gpu_power_w"}),
        ({"nvmlDeviceGetEnforcedPowerLimit"}, {"gpu_power_limit_w"}),
        ({"nvmlDeviceGetTemperatureV"}, set()),  # an older driver: the older function
        ({"nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"}, {"gpu_temperature_c"}),
        ({"nvmlDeviceGetClockInfo"}, {"sm_clock_mhz"}),
        ({"nvmlDeviceGetCurrentClocksEventReasons"}, set()),
        (
            {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
            {"gpu_throttled", "gpu_power_capped"},
        ),
        ({"nvmlDeviceGetPcieThroughput"}, {"pcie_rx_mib_s", "pcie_tx_mib_s"}),
        (
            {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"},
            {"gpu_other_processes"},
        ),
        ({"nvmlGpmQueryDeviceSupport"}, set()),
    ],
)
def test_each_value_fails_alone(functions, lost):
    card = load(FakeNvml(broken=functions))
    for _ in range(3):
        assert card.read() == pytest.approx({name: value for name, value in ALL.items() if name not in lost})


@pytest.mark.parametrize("function", ["nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_counters_that_fail_leave_the_rest(function):
    fake = FakeNvml(broken={function})
    fake.counted = {2: 0.0, 3: 0.0, 20: 0.0, 21: 0.0}
    card = load(fake)
    for _ in range(3):
        assert card.read() == pytest.approx(ALL)


def test_the_counters_are_the_difference_of_two_readings():
    fake = FakeNvml()
    fake.counted = {2: 10.0, 3: 5.0, 20: 1.0, 21: 2.0}
    card = load(fake)
    assert card.read() == pytest.approx(ALL), "one reading gives no counters, and PCIe by NVML's own look"
    asked = fake.calls.count("nvmlDeviceGetPcieThroughput")
    for activity, occupancy in ((62.5, 21.0), (80.0, 3.0)):
        fake.counted = {
            2: fake.counted[2] + activity,
            3: fake.counted[3] + occupancy,
            20: fake.counted[20] + 300.0,
            21: fake.counted[21] + 40.0,
        }
        found = card.read()
        assert found["sm_activity"] == pytest.approx(activity / 100)
        assert found["sm_occupancy"] == pytest.approx(occupancy / 100)
        assert (found["pcie_tx_mib_s"], found["pcie_rx_mib_s"]) == pytest.approx((300.0, 40.0))
    assert fake.calls.count("nvmlDeviceGetPcieThroughput") == asked, "the look that takes 20 ms is not needed then"
    card.close()
    assert not fake._buffers and card.read()["gpu_util"] == 0.93


def test_a_counter_that_the_card_does_not_have_is_left_out():
    fake = FakeNvml()
    fake.counted = {2: 0.0}
    card = load(fake)
    card.read()
    fake.counted = {2: 50.0}
    found = card.read()
    assert found["sm_activity"] == 0.5 and "sm_occupancy" not in found and found["pcie_rx_mib_s"] == 2.0


def test_what_takes_long_is_asked_for_seldom():
    fake = FakeNvml()
    card = load(fake)
    for _ in range(10):
        assert card.read() == pytest.approx(ALL)
    assert fake.calls.count("nvmlDeviceGetPcieThroughput") == 2 * 2
    assert fake.calls.count("nvmlDeviceGetComputeRunningProcesses") == 1
    fake.kilobytes = (1024, 1024)
    assert card.read()["pcie_rx_mib_s"] == 1.0


@pytest.mark.parametrize(
    ("bits", "throttled", "capped"),
    [
        (0x0, 0, 0),
        (0x1, 0, 0),  # idle
        (0x2, 0, 0),  # clocks that somebody has set
        (0x4, 0, 1),  # the driver's power limit: normal
        (0x10, 0, 0),  # sync boost
        (0x100, 0, 0),
        (0x8, 1, 0),
        (0x20, 1, 0),
        (0x40, 1, 0),
        (0x80, 1, 0),
        (0x4 | 0x40, 1, 1),
    ],
)
def test_what_counts_as_slowed_down(bits, throttled, capped):
    fake = FakeNvml()
    fake.reasons = bits
    found = load(fake).read()
    assert (found["gpu_throttled"], found["gpu_power_capped"]) == (throttled, capped)


def test_the_bits_are_those_of_the_library():
    import pynvml

    from llamafactory_obs.gpu import gpm
    from llamafactory_obs.gpu import load as module

    names = ("HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    assert sum(getattr(pynvml, f"nvmlClocksEventReason{name}") for name in names) == module._SLOWED
    assert pynvml.nvmlClocksEventReasonSwPowerCap == module._POWER_CAP
    metrics = ("SM_UTIL", "SM_OCCUPANCY", "PCIE_TX_PER_SEC", "PCIE_RX_PER_SEC")
    assert [getattr(pynvml, f"NVML_GPM_METRIC_{name}") for name in metrics] == list(gpm._METRICS)
    assert gpm._VERSION == pynvml.NVML_GPM_METRICS_GET_VERSION


def test_a_mig_slice_gets_none_of_the_whole_card_s_numbers():
    fake = FakeNvml(mig={0})
    fake.counted = {2: 0.0}
    card = load(fake)
    assert card.read() == {} and "MIG" in card.reason
    assert "nvmlGpmQueryDeviceSupport" not in fake.calls


def test_the_mapped_card_is_asked(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    fake = FakeNvml()
    asked = []
    fake.nvmlDeviceGetPowerUsage = lambda card: asked.append(card.index) or 1000
    load(fake).read()
    assert asked == [2]


@pytest.mark.parametrize("value", ["", "-1", "9"])
def test_no_device_is_a_reason_and_no_number(monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    card = load(FakeNvml())
    assert card.read() == {} and card.reason
    card.close()


def test_no_library_is_a_reason_and_no_number():
    card = load(FakeNvml(broken={"nvmlInit"}))
    assert card.read() == {} and "NVML is not available" in card.reason and not card.lost


def test_who_else_is_on_the_card(monkeypatch):
    from types import SimpleNamespace as Row

    fake = FakeNvml()
    fake.nvmlDeviceGetGraphicsRunningProcesses = lambda card: []

    def others(own_pids: bool, *pids):
        monkeypatch.setattr(nvml, "pids_are_ours", lambda: own_pids)
        fake.running = [Row(pid=pid, usedGpuMemory=1) for pid in pids]
        return load(fake).read().get("gpu_other_processes")

    assert others(True, 4242) == 0
    assert others(True, 4242, 7, 8) == 2
    assert others(False, 17) == 0, "pids of another namespace: the only one is ours"
    assert others(False, 17, 18) == 1
    assert others(True) is None, "not even this process is seen: unknown"


def test_a_card_that_is_lost():
    fake = FakeNvml()
    card = load(fake)
    neighbour = GpuLoad(card._nvml, 1)
    assert card.read()["gpu_lost"] == 0
    fake.broken, fake.error = {"all"}, GpuIsLost
    found = card.read()
    assert found["gpu_lost"] == 1 and card.lost and not {"gpu_util", "gpu_power_w", "gpu_temperature_c"} & set(found)
    assert not neighbour.lost
