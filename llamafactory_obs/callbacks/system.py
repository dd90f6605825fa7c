"""`system`: how busy, hot and throttled the GPU is; CPU, RAM, disk and network; and why a GPU idles."""

import os
from dataclasses import dataclass
from typing import ClassVar

import psutil
import torch

from ..detect import Facts, GrowthDetector, LowGpuUtilDetector, LowRoomDetector, ThrottledDetector
from ..gpu.load import GpuLoad
from ..gpu.nvml import Nvml
from ..record.schema import Key
from .base import ObsCallback
from .cgroup import ControlGroup, usable_cpus
from .disk_room import DiskRoom
from .host_load import HostLoad
from .sampler import Sampler
from .throughput import PARTS

_GIB = 1 << 30
#: parts of a step that may be the reason for an idle GPU
_PARTS = (*PARTS, "callbacks")


@dataclass(eq=False)
class System(ObsCallback):
    """Samples the machine in a thread of its own and gives each step what the samples within it come to.

    A step without a sample of its own takes the newest one. Each rank samples its own GPU and its own processes; what
    belongs to a node is sampled by one rank of it.
    """

    yaml_name: ClassVar[str] = "system"
    keys: ClassVar[tuple[Key, ...]] = (
        Key("system/gpu_util", "0..1", "share of time in which any kernel ran on the card", "mean"),
        Key("system/gpu_memory_util", "0..1", "share of time in which device memory was read or written", "mean"),
        Key("system/sm_activity", "0..1", "share of the SMs that were busy (Hopper and later)", "mean"),
        Key("system/sm_occupancy", "0..1", "share of the possible warps that were active (Hopper and later)", "mean"),
        Key("system/sm_clock_mhz", "MHz", "clock of the SMs; of the slowest card", "min"),
        Key("system/gpu_power_w", "W", "power drawn, all cards together", "sum"),
        Key("system/gpu_power_limit_w", "W", "the limits that the drivers keep, all cards together", "sum"),
        Key("system/gpu_temperature_c", "C", "highest temperature within the step; of the hottest card", "max"),
        Key(
            "system/gpu_throttled", "0..1", "share of samples slowed down by heat or hardware; of the worst card", "max"
        ),
        Key(
            "system/gpu_power_capped", "0..1", "share of samples kept at the power limit (normal at full load)", "mean"
        ),
        Key("system/pcie_rx_mib_s", "MiB/s", "over PCIe to the cards", "sum"),
        Key("system/pcie_tx_mib_s", "MiB/s", "over PCIe from the cards", "sum"),
        Key("system/gpu_other_processes", "processes", "others on the card; of the fullest card", "max"),
        Key("system/gpu_lost", "0 or 1", "NVML says that a card is lost or must be reset", "max"),
        Key("system/cpu_percent", "%", "CPU of the training's processes, 100 = one core", "sum"),
        Key(
            "system/process_ram_gib",
            "GiB",
            "resident memory of the training's processes; shared pages count often",
            "sum",
        ),
        Key("system/disk_read_mib_s", "MiB/s", "read from storage by the training's processes", "sum"),
        Key("system/disk_write_mib_s", "MiB/s", "written by the training's processes", "sum"),
        Key("system/host_cpu_percent", "%", "CPU of the whole node, 100 = all of it busy", "mean"),
        Key("system/host_disk_mib_s", "MiB/s", "read and written by the whole node, hardware disks", "sum"),
        Key("system/net_mib_s", "MiB/s", "sent and received by the whole node (container), without loopback", "sum"),
        Key(
            "system/ram_available_gib", "GiB", "RAM still to be had on the node, or within the container's limit", "min"
        ),
        Key("system/disk_free_gib", "GiB", "free disk of output_dir", "min"),
    )

    interval: float = 1.0
    """Seconds between two samples."""

    low_util: float = 0.8
    """Warn when the GPU's utilisation stays under this share for a minute; 0 = never."""

    ram_margin_gib: float | None = None
    """Warn when less RAM than this is left; null: 5 % of what there is, at most 4."""

    disk_margin_gib: float = 1.0
    """Warn when less than this is free where output_dir is, whatever the checkpoints take."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval < 0.1:
            raise ValueError(f"interval must be at least 0.1 s, got {self.interval}")
        if not 0 <= self.low_util <= 1:
            raise ValueError(f"low_util must be from 0 to 1, got {self.low_util}")
        for name in ("ram_margin_gib", "disk_margin_gib"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        self._sampler: Sampler | None = None

    def begin(self) -> None:
        trainer = self.run.trainer
        group = ControlGroup()
        ram = min(psutil.virtual_memory().total, group.memory_limit or float("inf")) / _GIB
        facts = _facts(trainer, usable_cpus(group))
        self._low = LowGpuUtilDetector(self.low_util, facts=facts) if self.low_util else None
        self._throttled = ThrottledDetector()
        self._ram_gib = ram
        self._ram_floor = min(4.0, 0.05 * ram) if self.ram_margin_gib is None else self.ram_margin_gib
        self._ram = LowRoomDetector("ram_nearly_gone", "RAM", _RAM_ADVICE, limits=_RAM_LIMITS)
        self._growth = GrowthDetector(
            ram, total_steps=trainer.state.max_steps, name="ram_growth", label="RAM in use on this machine"
        )
        self._growing, self._said_lost, self._at = False, False, None
        bounded = any(getattr(one, "top_k", None) for one in self.run.callbacks)  # checkpoint_guard deletes old ones
        self._disk = DiskRoom(trainer, self.disk_margin_gib, bounded)
        self._open_sources(trainer, group, facts)

    def _open_sources(self, trainer, group: ControlGroup, facts: Facts) -> None:
        host = HostLoad(trainer.args.output_dir, trainer.args.local_process_index == 0, group)
        self._gpu, nvml = None, None
        missing = "no CUDA device: no GPU columns, and no word on its utilisation"
        if trainer.args.device.type == "cuda":
            index = trainer.args.device.index
            nvml = Nvml()
            self._gpu = GpuLoad(nvml, torch.cuda.current_device() if index is None else index)
            missing = f"{self._gpu.reason}; no GPU columns" if self._gpu.reason else ""
        highest, lowest = {"gpu_temperature_c", "gpu_lost"}, {"ram_available_gib", "disk_free_gib"}
        sources = [host] if self._gpu is None else [self._gpu, host]
        self._sampler = Sampler(sources, self.interval, highest, lowest)
        self._sampler.start()
        unread = host.errors | (nvml.errors if nvml is not None else {})
        if host.errors:
            missing += f"{'; ' if missing else ''}not readable here: {', '.join(host.errors)}"
        if missing:
            evidence = {"unread": unread, "usable_cpus": facts.cpus, "ram_gib": self._ram_gib}
            self.run.event("note", self.yaml_name, "sources", missing, evidence=evidence)

    def step(self) -> None:
        for name, value in self._sampler.take().items():
            self.run.put(f"system/{name}", value)

    def evaluated(self, metrics: dict) -> None:
        self.run.open_row.facts["break"] = True

    def saved(self, folder: str, last: bool) -> None:
        self.run.open_row.facts["break"] = True
        self._disk.saved(folder, last)

    def row(self, row) -> None:
        values = row.values
        seconds = self._seconds(row)
        if self._low is not None:
            parts = {part: values[f"time/{part}_s"] for part in _PARTS if f"time/{part}_s" in values}
            parts = parts if "time/step_s" in values else {}
            parts |= {name: values[f"system/{name}"] for name in Facts.MEANS if f"system/{name}" in values}
            self._say(self._low.update(row.step, seconds, values.get("system/gpu_util"), parts, "break" in row.facts))
        heat = values.get("system/gpu_temperature_c")
        self._say(self._throttled.update(row.step, seconds, values.get("system/gpu_throttled"), heat))
        if self.run.replaying:  # RAM and disk are those of this machine, now
            return
        self._judge_ram(row.step, values.get("system/ram_available_gib"))
        for finding in self._disk.judge(row.step, values.get("system/disk_free_gib")):
            self._say(finding)
        if values.get("system/gpu_lost"):
            self._say_lost(row.step)

    def _seconds(self, row) -> float | None:
        """Wall time of a row's step: `throughput`'s, else from the row before."""
        place = (self.run.replaying, row.values.get("segment"))
        now = row.time or row.values.get("time")
        before, self._at = self._at, (place, now)
        if "time/step_s" in row.values:
            return row.values["time/step_s"]
        return now - before[1] if now and before is not None and before[0] == place else None

    def _judge_ram(self, step: int, available: float | None) -> None:
        if available is None:
            return
        self._say(self._ram.update(step, available, self._ram_floor))
        finding = self._growth.update(step, self._ram_gib - available)
        if finding is None:
            return
        # a slow rise that the run does not live to see is no news: whatever else runs on the machine makes one
        if finding.level == "error" or (finding.name == "growth_over" and self._growing):
            self._growing = finding.level == "error"
            self._say(finding)

    def _say(self, finding) -> None:
        if finding is not None:
            self.run.alert(self.yaml_name, finding)

    def failed(self, error: BaseException) -> None:
        if self._gpu is not None and self._gpu.lost:
            self._say_lost(self.run.step)

    def _say_lost(self, step: int) -> None:
        if not self._said_lost:
            self._said_lost = True
            text = (
                "NVML says that a GPU is lost or must be reset: it has fallen off the bus (an Xid error in the kernel"
                " log, `dmesg | grep -i xid`, says why). Go on from the last checkpoint, after a reset or elsewhere"
            )
            self.run.event("alert", self.yaml_name, "gpu_lost", text, level="warn", step=step)

    def summary(self) -> dict:
        values = self.run.last.values
        names = ("gpu_util", "gpu_temperature_c", "cpu_percent", "ram_available_gib")
        return {name: values[f"system/{name}"] for name in names if f"system/{name}" in values}

    def off(self) -> None:
        if self._sampler is not None:
            self._sampler.close()


_RAM_ADVICE = (
    "When it is used up the kernel kills the training without a word (SIGKILL, exit code 137): save, and lower"
    " dataloader_num_workers or preprocessing_num_workers, or keep the data on disk (streaming, tokenized_path)."
)
_RAM_LIMITS = (
    "Available memory counts caches that the kernel would give back. In a container it is what the limit leaves;"
    " another container's use is seen only where it takes the host's last."
)


def _facts(trainer, cpus: float) -> Facts:
    args, state = trainer.args, trainer.state
    return Facts(
        cpus=cpus,
        local_ranks=int(os.environ.get("LOCAL_WORLD_SIZE") or 1),
        workers=args.dataloader_num_workers,
        batch=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        eval_steps=state.eval_steps if args.eval_strategy == "steps" else None,
        save_steps=state.save_steps if args.save_strategy == "steps" else None,
    )
