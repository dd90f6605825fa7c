"""The whole card's view through NVML: what every process on it uses, not only this one. Optional in every part.

torch counts its own allocator only; NVML sees the vLLM server beside it as well. The library is `pynvml` (from the
project `nvidia-ml-py`). Where it, the driver, a permission or one single value is missing, that value is None and
`reason` or `errors` says why: one debug line, never a warning, never an exception.

NVML indices are not CUDA indices: devices are matched by UUID or PCI bus id where torch has CUDA running, else through
`CUDA_VISIBLE_DEVICES` (`gpu/visible.py`) and `CUDA_DEVICE_ORDER`. On a MIG slice the whole-card numbers would be
wrong (141 GB instead of 16), so they are None: use torch's own there.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from .match import match_devices
from .processes import pids_are_ours, process_name

logger = logging.getLogger(__name__)

_ENVIRONMENT = "<the environment>"


@dataclass
class Device:
    """One CUDA device of this process, as NVML knows it."""

    logical: int
    """The index that torch uses: `cuda:<logical>`."""
    handle: object = None
    """NVML's handle of the card (of the MIG slice where kind is `mig`); None where it could not be told which it is."""
    kind: str = "gpu"
    """`gpu` | `mig` | `unknown`."""
    uuid: str | None = None
    """Full UUID, as NVML writes it."""
    pci_bus_id: str | None = None
    how: str = "index"
    """What the match rests on: `uuid` | `pci_bus_id` (both from torch) | `visible_uuid` | `index`."""
    reason: str | None = None
    """Why the handle is missing or its numbers may not be used; None when all is well."""


class Nvml:
    """Lazy, forgiving access to NVML.

    Args:
        provider: a module with pynvml's functions; None imports `pynvml` at the first use.
        torch: a torch-like module to match devices with; None takes torch where it is already imported.
        name_of: pid -> name of the process or None, see `processes.process_name`.
    """

    def __init__(
        self,
        provider: ModuleType | object | None = None,
        *,
        torch: object | None = None,
        name_of: Callable[[int], str | None] = process_name,
    ):
        self._provider = provider
        self._torch = torch
        self._name_of = name_of
        self._state: str = "new"  # new | ready | failed
        self._devices: list[Device] | None = None
        self.reason: str | None = None
        """Why NVML as a whole cannot be used (or sees no device), one line; None when it can."""
        self.errors: dict[str, str] = {}
        """The values that failed alone: `{"memory[0]": "NVMLError_NoPermission: ..."}`, the first error of each."""

    # ---------------------------------------------------------------- availability

    @property
    def available(self) -> bool:
        """Whether the library is there and the driver answers; the first call starts NVML."""
        if self._state == "new":
            self._state = "failed"
            try:
                if self._provider is None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # the old PyPI project `pynvml` warns at import
                        import pynvml

                    self._provider = pynvml
                self._provider.nvmlInit()
                self._state = "ready"
            except Exception as error:
                missing = isinstance(error, ImportError)
                why = "the module pynvml (nvidia-ml-py) is not installed" if missing else _say(error)
                self.reason = f"NVML is not available: {why}"
                logger.debug(self.reason)
        return self._state == "ready"

    def close(self) -> None:
        """Give NVML back; a later call starts it again."""
        if self._state == "ready":
            with contextlib.suppress(Exception):
                self._provider.nvmlShutdown()
        self._state, self._devices = "new", None

    # ---------------------------------------------------------------- devices

    def devices_for_process(self, cuda_visible_devices: str | None = _ENVIRONMENT) -> list[Device]:
        """The CUDA devices that a process with this `CUDA_VISIBLE_DEVICES` sees, in CUDA's order.

        The other methods use the mapping of the latest call; without one, that of this process's environment.

        Args:
            cuda_visible_devices: the variable's content, None for "not set"; left out: this process's own.

        Returns:
            One `Device` per visible device, position = logical CUDA index; `[]` without NVML or without devices
            (then `reason` says why). A device that cannot be told apart has no handle and a `reason` of its own.
        """
        own = os.environ.get("CUDA_VISIBLE_DEVICES")
        value = own if cuda_visible_devices == _ENVIRONMENT else cuda_visible_devices
        self._devices = []
        if self.available:
            try:
                found, self.reason = match_devices(self, value, self._torch, use_torch=value == own)
                self._devices = [Device(logical, **fields) for logical, fields in enumerate(found)]
            except Exception as error:
                self.reason = f"NVML devices could not be listed: {_say(error)}"
            if self.reason:
                logger.debug(self.reason)
        return self._devices

    def device(self, logical_index: int) -> Device | None:
        """The device `cuda:<logical_index>`, or None where there is none."""
        if self._devices is None:
            self.devices_for_process()
        return self._devices[logical_index] if 0 <= logical_index < len(self._devices) else None

    def _card(self, logical_index: int) -> object | None:
        """The handle of a whole card whose numbers may be used, else None."""
        device = self.device(logical_index)
        return device.handle if device is not None and device.kind == "gpu" else None

    # ---------------------------------------------------------------- values

    def memory(self, logical_index: int) -> dict[str, int] | None:
        """`{"total", "used", "free"}` of the whole card in bytes; None on MIG and where unknown."""
        handle = self._card(logical_index)
        if handle is None:
            return None
        info = self.ask(f"memory[{logical_index}]", "nvmlDeviceGetMemoryInfo", handle)
        if info is None:
            return None
        return {name: int(getattr(info, name)) for name in ("total", "used", "free")}

    def processes(self, logical_index: int) -> list[dict] | None:
        """Who holds memory on the card: `[{"pid", "used": bytes|None, "name": str|None, "own": bool|None}]`.

        Largest first. None on MIG and where unknown; `[]` means that NVML listed nobody, which in a container may
        only mean that it cannot see them. Names are bare (no path); name and `own` (this very process) are None where
        the pids belong to another namespace.
        """
        handle = self._card(logical_index)
        if handle is None:
            return None
        found: dict[int, int | None] = {}
        answered = False
        for kind in ("Compute", "Graphics"):
            rows = self.ask(f"processes[{logical_index}].{kind}", f"nvmlDeviceGet{kind}RunningProcesses", handle)
            answered = answered or rows is not None
            for row in rows or []:
                used = getattr(row, "usedGpuMemory", None)
                found[int(row.pid)] = max(filter(None, (used, found.get(int(row.pid)))), default=None)
        if not answered:
            return None
        own = os.getpid() if pids_are_ours() else None
        rows = [
            {"pid": pid, "used": used, "name": self._name(pid), "own": None if own is None else pid == own}
            for pid, used in found.items()
        ]
        return sorted(rows, key=lambda row: (-(row["used"] or 0), row["pid"]))

    def name(self, logical_index: int) -> str | None:
        """The card's name, for example `NVIDIA H200`; None where unknown."""
        device = self.device(logical_index)
        if device is None or device.handle is None:
            return None
        return _text(self.ask(f"name[{logical_index}]", "nvmlDeviceGetName", device.handle))

    def uuid(self, logical_index: int) -> str | None:
        """The full UUID, `GPU-...` or `MIG-...`; None where unknown."""
        device = self.device(logical_index)
        return device.uuid if device is not None else None

    def driver_version(self) -> str | None:
        """The driver's version, for example `570.86.15`; None where unknown."""
        return _text(self.ask("driver_version", "nvmlSystemGetDriverVersion")) if self.available else None

    def cuda_driver_version(self) -> str | None:
        """The newest CUDA that the driver supports, for example `12.8`; None where unknown."""
        if not self.available:
            return None
        number = self.ask("cuda_driver_version", "nvmlSystemGetCudaDriverVersion")
        return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) else None

    # ---------------------------------------------------------------- helpers

    def ask(self, what: str, function: str, *args: object) -> object | None:
        """Call one NVML function; None and an entry `errors[what]` where it fails."""
        try:
            return getattr(self._provider, function)(*args)
        except Exception as error:
            if what not in self.errors:
                self.errors[what] = _say(error)
                logger.debug("NVML: %s is not available: %s", what, self.errors[what])
            return None

    def _name(self, pid: int) -> str | None:
        try:
            name = self._name_of(pid)
        except Exception:
            return None
        return os.path.basename(name) if name else None


def _say(error: BaseException) -> str:
    """One line for an error, its class first."""
    try:
        return f"{type(error).__name__}: {error}".strip().rstrip(":")
    except Exception:  # pynvml's own __str__ may ask a library that is not there
        return type(error).__name__


def _text(value: object) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else (str(value) if value else None)
