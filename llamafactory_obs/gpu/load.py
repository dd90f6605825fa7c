"""How busy, hot and throttled one card is, from NVML. Every value fails alone."""

from .gpm import Gpm
from .nvml import Nvml

_GPU_SENSOR, _SM_CLOCK, _PCIE_TX, _PCIE_RX = 0, 1, 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_PCIE_UTIL_*

#: bits of NVML's clocks event reasons: hardware slowdown, software and hardware thermal slowdown, external power brake;
#: idle (0x01) and clocks that somebody has set are no trouble
_SLOWED = 0x08 | 0x20 | 0x40 | 0x80
#: the driver keeps the card at its power limit: normal under full load
_POWER_CAP = 0x04

#: what takes long is asked for once in so many readings
_PROCESSES_EVERY, _TRAFFIC_EVERY = 10, 5


class GpuLoad:
    """One device of this process.

    Args:
        nvml: where the figures come from.
        index: logical CUDA index.

    Attributes:
        reason: why there are no figures at all, one line; "" where there are some.
    """

    def __init__(self, nvml: Nvml, index: int):
        self._nvml, self._index = nvml, index
        device = nvml.device(index)
        usable = device is not None and device.kind == "gpu" and device.handle is not None
        self._handle = device.handle if usable else None
        self.reason = "" if usable else (device and device.reason) or nvml.reason or f"NVML does not list cuda:{index}"
        self._gpm = Gpm(nvml, index, self._handle) if usable else None
        self._answering: dict[str, str] = {}
        self._readings = 0
        self._others: int | None = None
        self._looked: dict[str, float | None] = {}

    def read(self) -> dict[str, float]:
        """What is known now.

        Returns:
            `gpu_util` and `gpu_memory_util` (0..1: time with a kernel running, with device memory in use),
            `sm_activity` and `sm_occupancy` (0..1, Hopper and later), `gpu_power_w`, `gpu_power_limit_w`,
            `gpu_temperature_c`, `sm_clock_mhz`, `gpu_throttled` and `gpu_power_capped` (0 or 1), `pcie_rx_mib_s` (to
            the card), `pcie_tx_mib_s`, `gpu_other_processes`, `gpu_lost` (0 or 1). What NVML does not say is left out.
        """
        if self._handle is None:
            return {}
        found: dict[str, float | None] = {}
        rates = self._ask("utilization", "nvmlDeviceGetUtilizationRates", self._handle)
        if rates is not None:
            found |= {"gpu_util": rates.gpu / 100, "gpu_memory_util": rates.memory / 100}
        power = self._ask("power", "nvmlDeviceGetPowerUsage", self._handle)
        limit = self._ask("power_limit", "nvmlDeviceGetEnforcedPowerLimit", self._handle)
        found |= {"gpu_power_w": _scaled(power, 1e-3), "gpu_power_limit_w": _scaled(limit, 1e-3)}
        heat = self._either("temperature", ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), _GPU_SENSOR)
        found |= {"gpu_temperature_c": _scaled(heat, 1.0)}
        found |= {"sm_clock_mhz": _scaled(self._ask("clock", "nvmlDeviceGetClockInfo", self._handle, _SM_CLOCK), 1.0)}
        bits = self._reasons()
        if bits is not None:
            found |= {"gpu_throttled": float(bool(bits & _SLOWED)), "gpu_power_capped": float(bool(bits & _POWER_CAP))}
        found |= self._traffic(self._gpm.read())
        found |= {"gpu_other_processes": self._count_others(), "gpu_lost": float(self.lost)}
        self._readings += 1
        return {name: value for name, value in found.items() if value is not None}

    @property
    def lost(self) -> bool:
        """Has NVML said that the card is gone (fell off the bus) or must be reset?"""
        mine = (text for what, text in self._nvml.errors.items() if what.endswith(f"[{self._index}]"))
        return any(word in text for text in mine for word in ("GpuIsLost", "GPU is lost", "ResetRequired"))

    def close(self) -> None:
        """Free what NVML holds for us."""
        if self._gpm is not None:
            self._gpm.close()

    def _traffic(self, counted: dict[str, float]) -> dict[str, float | None]:
        """PCIe traffic: from the counters where there are some, else NVML's own look at 20 ms, which takes 20 ms."""
        if self._readings % _TRAFFIC_EVERY == 0:
            for name, counter in (("pcie_tx_mib_s", _PCIE_TX), ("pcie_rx_mib_s", _PCIE_RX)):
                if name not in counted:
                    kilobytes = self._ask(name, "nvmlDeviceGetPcieThroughput", self._handle, counter)
                    self._looked[name] = _scaled(kilobytes, 1 / 1024)
        return self._looked | counted

    def _count_others(self) -> float | None:
        if self._readings % _PROCESSES_EVERY == 0:
            listed = self._nvml.processes(self._index)
            # an empty list: nobody is seen, not even this process; pids of another namespace: one of them is ours
            self._others = None if not listed else sum(not row["own"] for row in listed)
            if listed and listed[0]["own"] is None:
                self._others = len(listed) - 1
        return _scaled(self._others, 1.0)

    def _reasons(self) -> int | None:
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return self._either("clocks", names)

    def _either(self, what: str, functions: tuple[str, ...], *args: object) -> object | None:
        """The newer name of a function, or the older one where the library or the driver knows only that."""
        for function in (self._answering[what],) if what in self._answering else functions:
            value = self._ask(f"{what}.{function}", function, self._handle, *args)
            if value is not None:
                self._answering[what] = function
                return value
        return None

    def _ask(self, what: str, function: str, *args: object) -> object | None:
        return self._nvml.ask(f"{what}[{self._index}]", function, *args)


def _scaled(value: object, factor: float) -> float | None:
    return None if value is None else float(value) * factor
