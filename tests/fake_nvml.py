"""A stand-in for the module `pynvml`: four cards, the errors, the bytes and the structures of the real one."""

import ctypes
from types import SimpleNamespace as Row

import pynvml

GIB = 2**30
UUIDS = [f"GPU-{n}a88aa00-0000-1111-2222-33333333333{n}" for n in range(4)]


class NoPermission(Exception):
    def __str__(self):
        return "Insufficient Permissions"


class GpuIsLost(Exception):
    def __str__(self):
        return "GPU is lost"


class FakeNvml:
    """pynvml's functions over plain rows; `broken` names functions that raise `error`.

    The load is that of every card: `util`, `memory_util` (%), `milliwatts`, `heat` (C), `reasons` (bits), `sm_mhz`,
    `kilobytes` (PCIe: to, from the card). `counted` are the performance counters so far, None: the card has none.
    """

    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t

    def __init__(self, names=("NVIDIA H200",) * 4, mig=(), broken=(), as_bytes=False):
        self.cards = [
            Row(index=i, name=n, uuid=UUIDS[i], pci=f"00000000:{i + 1:02X}:00.0", total=(i + 1) * 10 * GIB)
            for i, n in enumerate(names)
        ]
        if len(set(names)) == 1:
            for card in self.cards:
                card.total = 140 * GIB
        self.mig, self.broken, self.as_bytes, self.calls = set(mig), set(broken), as_bytes, []
        self.error = NoPermission
        self.util, self.memory_util, self.milliwatts, self.heat, self.reasons, self.sm_mhz = (
            93,
            41,
            512_340,
            61,
            0,
            1980,
        )
        self.kilobytes = (2048, 512)
        self.counted: dict[int, float] | None = None
        self._buffers: dict[int, tuple] = {}
        self.running = [Row(pid=4242, usedGpuMemory=30 * GIB), Row(pid=4343, usedGpuMemory=None)]

    def __getattribute__(self, name):
        if name.startswith("nvml"):
            self.calls.append(name)
            if name in self.broken or "all" in self.broken:
                raise self.error
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

    def nvmlDeviceGetUtilizationRates(self, card):
        return Row(gpu=self.util, memory=self.memory_util)

    def nvmlDeviceGetPowerUsage(self, card):
        return self.milliwatts

    def nvmlDeviceGetEnforcedPowerLimit(self, card):
        return 700_000

    def nvmlDeviceGetTemperatureV(self, card, sensor):
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self.heat

    def nvmlDeviceGetTemperature(self, card, sensor):
        return self.heat

    def nvmlDeviceGetClockInfo(self, card, clock):
        assert clock == pynvml.NVML_CLOCK_SM
        return self.sm_mhz

    def nvmlDeviceGetCurrentClocksEventReasons(self, card):
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card):
        return self.reasons

    def nvmlDeviceGetPcieThroughput(self, card, counter):
        return self.kilobytes[{pynvml.NVML_PCIE_UTIL_RX_BYTES: 0, pynvml.NVML_PCIE_UTIL_TX_BYTES: 1}[counter]]

    def nvmlGpmQueryDeviceSupport(self, card):
        return Row(isSupportedDevice=int(self.counted is not None))

    def nvmlGpmSampleAlloc(self):
        memory = ctypes.create_string_buffer(8)
        sample = ctypes.cast(memory, pynvml.c_nvmlGpmSample_t)
        self._buffers[_address(sample)] = (memory, None)
        return sample

    def nvmlGpmSampleFree(self, sample):
        del self._buffers[_address(sample)]

    def nvmlGpmSampleGet(self, card, sample):
        self._buffers[_address(sample)] = (self._buffers[_address(sample)][0], dict(self.counted))
        return sample

    def nvmlGpmMetricsGet(self, request):
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        before, after = (self._buffers[_address(sample)][1] for sample in (request.sample1, request.sample2))
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            known = metric.metricId in after
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = after[metric.metricId] - before[metric.metricId] if known else -1.0
        return request


def _address(sample) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value
