"""SM activity, SM occupancy and PCIe traffic from NVML's performance counters (GPM: Hopper and later).

A number is taken from two readings of the counters; NVML wants them more than 100 ms apart. On cards without GPM, and
where the driver keeps the counters to administrators, nothing is given.
"""

#: what is asked: NVML_GPM_METRIC_* -> its name here and the factor to its unit here
_METRICS = {
    2: ("sm_activity", 0.01),  # SM_UTIL, % of SMs that were busy
    3: ("sm_occupancy", 0.01),  # SM_OCCUPANCY, % of the warps that could be active
    20: ("pcie_tx_mib_s", 1.0),  # PCIE_TX_PER_SEC, from the card
    21: ("pcie_rx_mib_s", 1.0),  # PCIE_RX_PER_SEC, to the card
}
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION


class Gpm:
    """The counters of one whole card.

    Args:
        nvml: the `Nvml` that asks (its `ask` never raises), already started.
        index: logical CUDA index, for the names in `Nvml.errors`.
        handle: NVML's handle of the card.
    """

    def __init__(self, nvml: object, index: int, handle: object):
        self._nvml, self._index, self._handle = nvml, index, handle
        self._older = self._newer = self._request = None
        self._has_older = False
        support = self._ask("support", "nvmlGpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            self._older, self._newer = (self._ask("buffer", "nvmlGpmSampleAlloc") for _ in range(2))
            self._request = self._ask("request", "c_nvmlGpmMetricsGet_t")  # 22 KB, so made once

    def read(self) -> dict[str, float]:
        """Means since the call before: `sm_activity`, `sm_occupancy` (0..1), `pcie_tx_mib_s`, `pcie_rx_mib_s`."""
        if self._older is None or self._newer is None or self._request is None:
            return {}
        if self._ask("sample", "nvmlGpmSampleGet", self._handle, self._newer) is None:
            self._has_older = False
            return {}
        found = self._between() if self._has_older else {}
        self._older, self._newer, self._has_older = self._newer, self._older, True
        return found

    def _between(self) -> dict[str, float]:
        request = self._request
        request.version, request.numMetrics = _VERSION, len(_METRICS)
        request.sample1, request.sample2 = self._older, self._newer
        for place, number in enumerate(_METRICS):
            request.metrics[place].metricId = number
        if self._ask("metrics", "nvmlGpmMetricsGet", request) is None:
            return {}
        answers = (request.metrics[place] for place in range(len(_METRICS)))
        return {
            name: one.value * factor
            for one, (name, factor) in zip(answers, _METRICS.values(), strict=True)
            if one.nvmlReturn == 0 and one.value >= 0
        }

    def close(self) -> None:
        """Free the buffers."""
        for buffer in (self._older, self._newer):
            if buffer is not None:
                self._ask("free", "nvmlGpmSampleFree", buffer)
        self._older = self._newer = None

    def _ask(self, what: str, function: str, *args: object) -> object | None:
        return self._nvml.ask(f"gpm_{what}[{self._index}]", function, *args)
