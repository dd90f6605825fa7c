"""Where the memory figures of a process come from: torch's CUDA allocator and NVML, or the process itself."""

import threading

import psutil
import torch

from ..gpu.nvml import Nvml

_GIB = 1 << 30


class CudaMemory:
    """The CUDA allocator's counters (no synchronisation) and, from a thread of its own, the whole card's use by NVML.

    Args:
        device: the training device.
        reset_peaks: reset torch's peak counters after each reading, so that a peak is that of one step. Other readers
            of the same counters (LlamaFactory's RECORD_VRAM, the Trainer's memory metrics) would then see it, so it is
            off unless asked for; without it peaks are those since training began.
    """

    def __init__(self, device: torch.device, reset_peaks: bool, nvml: Nvml | None = None):
        self._index = device.index if device.index is not None else torch.cuda.current_device()
        self._reset = reset_peaks
        self._nvml = nvml or Nvml()
        self._used: int | None = None
        self._over = threading.Event()
        self.note = "" if self._sample() else self._why_not()
        if not self.note:
            threading.Thread(target=self._watch, name="llamafactory-obs-nvml", daemon=True).start()

    def read(self) -> dict[str, float]:
        """Column -> number, in GiB."""
        stats = torch.cuda.memory_stats(self._index)
        allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        figures = {
            "system/allocated_gib": allocated / _GIB,
            "system/reserved_gib": reserved / _GIB,
            "system/peak_allocated_gib": stats["allocated_bytes.all.peak"] / _GIB,
            "system/peak_reserved_gib": stats["reserved_bytes.all.peak"] / _GIB,
            "system/fragmentation": stats.get("inactive_split_bytes.all.current", 0) / reserved if reserved else 0.0,
        }
        if self._used is not None:
            figures["system/device_used_gib"] = self._used / _GIB
        if self._reset:
            torch.cuda.reset_peak_memory_stats(self._index)
        return figures

    def report(self) -> dict:
        """For an out-of-memory event: the allocator's own summary and who else holds memory on the card."""
        holders = self._nvml.processes(self._index) or []
        return {
            "allocator_summary": torch.cuda.memory_summary(self._index, abbreviated=True),
            "processes_on_card": [{**p, "used_gib": (p["used"] or 0) / _GIB} for p in holders],
            "card_gib": torch.cuda.get_device_properties(self._index).total_memory / _GIB,
        }

    def close(self) -> None:
        self._over.set()

    def _why_not(self) -> str:
        device = self._nvml.device(self._index)
        reason = self._nvml.reason or (device.reason if device is not None else None) or "NVML gives no figures"
        return f"{reason}; other processes on the card are not seen"

    def _sample(self) -> bool:
        memory = self._nvml.memory(self._index)
        self._used = memory["used"] if memory else None
        return memory is not None

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self._sample()


class HostMemory:
    """Without a CUDA device: what this process holds in RAM."""

    note = "no CUDA device: the process' own memory (RSS) is recorded instead of VRAM"

    def __init__(self):
        self._process = psutil.Process()

    def read(self) -> dict[str, float]:
        return {"system/rss_gib": self._process.memory_info().rss / _GIB}

    def report(self) -> dict:
        memory = psutil.virtual_memory()
        return {"ram_gib": memory.total / _GIB, "ram_available_gib": memory.available / _GIB}

    def close(self) -> None:
        pass
