"""The machine, without its name or its users: processor, memory, cards, system. Other nodes are not seen from here."""

import os
import platform
import sys
from pathlib import Path

from ..gpu.nvml import Nvml
from .unknown import Unknowns

GIB = 2**30


def hardware_identity(unknown: Unknowns, nvml: Nvml | None = None) -> dict:
    """What this process runs on.

    Returns:
        `{"cpu", "cores_physical", "cores_logical", "cores_usable", "cpu_limit", "ram_gib", "ram_limit_gib", "os",
        "machine", "python", "gpu_count", "gpus": [...], "driver", "cuda_driver", "cuda_runtime", "cudnn", "nccl"}`.
        `cores_usable` is this process's affinity; the limits are the control group's (a container's), None for none.
        Memory in GiB. A GPU is `{"name", "memory_gib", "uuid" (first 8 digits), "compute_capability"}`.
    """
    nvml = nvml or Nvml()
    row = {
        "cpu": unknown.guard("hardware.cpu", _cpu_model),
        "cores_physical": unknown.guard("hardware.cores_physical", _physical_cores),
        "cores_logical": os.cpu_count(),
        "cores_usable": unknown.guard("hardware.cores_usable", lambda: len(os.sched_getaffinity(0))),
        "cpu_limit": unknown.guard("hardware.cpu_limit", _cpu_limit),
        "ram_gib": unknown.guard("hardware.ram_gib", _ram_gib),
        "ram_limit_gib": unknown.guard("hardware.ram_limit_gib", _ram_limit_gib),
        "os": f"{platform.system()} {platform.release()}".strip(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    for name in ("cpu", "cores_physical"):
        if row[name] is None:
            unknown.add(f"hardware.{name}", "the system does not say")
    row.update(unknown.guard("hardware.gpus", lambda: _gpus(unknown, nvml), {"gpu_count": None, "gpus": []}))
    return row


def _cpu_model() -> str | None:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model", "Processor") and value.strip():
                return " ".join(value.split())
    return platform.processor() or None


def _physical_cores() -> int | None:
    import psutil

    return psutil.cpu_count(logical=False)


def _ram_gib() -> float:
    import psutil

    return round(psutil.virtual_memory().total / GIB, 1)


def _cpu_limit() -> float | None:
    """Cores that the control group grants (v2 `cpu.max`, v1 quota / period); None where it sets no limit."""
    v2 = _read("/sys/fs/cgroup/cpu.max")
    if v2:
        quota, period = v2.split()[:2]
        return None if quota == "max" else round(int(quota) / int(period), 2)
    quota, period = (_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{part}_us") for part in ("quota", "period"))
    return round(int(quota) / int(period), 2) if quota and period and int(quota) > 0 else None


def _ram_limit_gib() -> float | None:
    """Memory that the control group grants, in GiB; None where it sets no limit."""
    text = _read("/sys/fs/cgroup/memory.max") or _read("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    if not text or text == "max" or int(text) >= 1 << 60:  # v1 writes a huge number for "no limit"
        return None
    return round(int(text) / GIB, 1)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _gpus(unknown: Unknowns, nvml: Nvml) -> dict:
    """The cards that this process sees. torch's CUDA is asked only where it is running already: never started here."""
    torch = sys.modules.get("torch")
    if torch is None:
        unknown.add("hardware.cuda_runtime", "torch is not imported")
    version = getattr(torch, "version", None)
    running = torch is not None and torch.cuda.is_initialized()
    devices = nvml.devices_for_process()
    if running:
        gpus = [_gpu_by_torch(torch, index) for index in range(torch.cuda.device_count())]
    else:
        gpus = [_gpu_by_nvml(nvml, device.logical, unknown) for device in devices]
    driver = nvml.driver_version()
    if not gpus and torch is None and nvml.reason:
        unknown.add("hardware.gpu_count", nvml.reason)
    if gpus and driver is None:
        unknown.add("hardware.driver", nvml.reason or nvml.errors.get("driver_version", "NVML does not say"))
    other = next((name for name in ("npu", "xpu", "mps") if torch is not None and _available(torch, name)), None)
    if other:
        unknown.add("hardware.gpus", f"the accelerator is of type {other}, its details are not read")
    counted = len(gpus) if (gpus or torch is not None or nvml.available) else None
    return {
        "gpu_count": counted,
        "gpus": gpus,
        "accelerator": "cuda" if gpus else other,
        "driver": driver,
        "cuda_driver": nvml.cuda_driver_version(),
        "cuda_runtime": getattr(version, "cuda", None) or getattr(version, "hip", None),
        "cudnn": unknown.guard("hardware.cudnn", torch.backends.cudnn.version) if running else None,
        "nccl": unknown.guard("hardware.nccl", lambda: _dotted(torch.cuda.nccl.version())) if running else None,
    }


def _gpu_by_torch(torch: object, index: int) -> dict:
    one = torch.cuda.get_device_properties(index)
    return {
        "name": one.name,
        "memory_gib": round(one.total_memory / GIB, 1),
        "uuid": short_uuid(getattr(one, "uuid", None)),
        "compute_capability": f"{one.major}.{one.minor}",
    }


def _gpu_by_nvml(nvml: Nvml, index: int, unknown: Unknowns) -> dict:
    memory = nvml.memory(index)
    device = nvml.device(index)
    if memory is None:
        unknown.add(f"hardware.gpus.{index}.memory_gib", (device and device.reason) or "NVML does not say")
    pair = (
        nvml.ask(f"capability[{index}]", "nvmlDeviceGetCudaComputeCapability", device.handle) if device.handle else None
    )
    return {
        "name": nvml.name(index),
        "memory_gib": round(memory["total"] / GIB, 1) if memory else None,
        "uuid": short_uuid(nvml.uuid(index)),
        "compute_capability": _dotted(pair) if pair else None,
    }


def short_uuid(uuid: object) -> str | None:
    """The first eight digits of a UUID: enough to tell cards apart, too little to name one in the world."""
    text = str(uuid or "").lower().replace("mig-gpu-", "mig-")
    kind, _, rest = text.partition("-") if text.startswith(("gpu-", "mig-")) else ("gpu", "", text)
    return f"{kind.upper()}-{rest[:8]}" if rest else None


def _dotted(numbers: object) -> str:
    return ".".join(map(str, numbers)) if isinstance(numbers, (tuple, list)) else str(numbers)


def _available(torch: object, name: str) -> bool:
    try:
        backend = getattr(torch, name, None) if name != "mps" else torch.backends.mps
        return bool(backend and backend.is_available())
    except Exception:
        return False
