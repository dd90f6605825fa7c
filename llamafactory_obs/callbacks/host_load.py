"""CPU, RAM, disk and network: of the training's own processes, and of the whole node where asked. Each fails alone."""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from .cgroup import ControlGroup
from .process_tree import ProcessTree

_MIB, _GIB = 1 << 20, 1 << 30
#: a falling total is waited for so many readings: a child that has ended is not yet added to its parent
_PATIENCE = 5
#: free space is asked for at most once in so many seconds: on a network file system it is not cheap
_DISK_EVERY_S = 10.0


_Readings = list[Callable[[], dict[str, float]]]


class HostLoad:
    """One reading after the other; rates are those since the reading before.

    Args:
        output_dir: the file system whose free space counts.
        whole_node: read the node's own figures too (one process on each node does).
        group: this process' control group.

    Attributes:
        errors: what could not be read -> why, the first time.
    """

    def __init__(self, output_dir: str, whole_node: bool, group: ControlGroup):
        self._tree, self._group, self._folder = ProcessTree(), group, _existing(output_dir)
        self._always: _Readings = [self._cpu, self._node_cpu, self._node_ram] if whole_node else [self._cpu]
        # dearer, or slower to change: every second time
        self._by_turns: tuple[_Readings, _Readings] = ([self._disk], [self._ram])
        if whole_node:
            self._by_turns = ([self._disk], [self._ram, self._node_network, self._node_disks, self._free_space])
        self._count = 0
        self._rates: dict[str, _Rate] = {}
        self._free: tuple[float, float] | None = None
        self.errors: dict[str, str] = {}

    def read(self) -> dict[str, float]:
        """What is known now.

        Returns:
            `cpu_percent` (100 = one core), `disk_read_mib_s`, `disk_write_mib_s`, `process_ram_gib` of this process
            and its children; of the node `host_cpu_percent` (100 = all of it), `ram_available_gib`, `net_mib_s`,
            `host_disk_mib_s`, `disk_free_gib`. The first reading has no rates.
        """
        found: dict[str, float] = {}
        try:
            self._tree.refresh()
        except Exception as error:
            self._failed("children", error)
        self._count += 1
        both = self._count <= 2  # rates need two
        turn = [*self._by_turns[0], *self._by_turns[1]] if both else self._by_turns[self._count % 2]
        for reading in (*self._always, *turn):
            try:
                found |= reading()
            except Exception as error:
                self._failed(reading.__name__.strip("_"), error)
        return found

    def close(self) -> None:
        """Nothing is held."""

    def _failed(self, what: str, error: Exception) -> None:
        self.errors.setdefault(what, f"{type(error).__name__}: {' '.join(str(error).split())}")

    def _rate(self, name: str, total: float, factor: float) -> dict[str, float]:
        rate = self._rates.setdefault(name, _Rate()).push(total, time.monotonic())
        return {} if rate is None else {name: rate * factor}

    # ---- the training's own processes

    def _cpu(self) -> dict[str, float]:
        return self._rate("cpu_percent", self._tree.cpu_seconds(), 100.0)

    def _disk(self) -> dict[str, float]:
        read, written = self._tree.io_bytes()
        return self._rate("disk_read_mib_s", read, 1 / _MIB) | self._rate("disk_write_mib_s", written, 1 / _MIB)

    def _ram(self) -> dict[str, float]:
        return {"process_ram_gib": self._tree.rss_bytes() / _GIB}

    # ---- the node

    def _node_cpu(self) -> dict[str, float]:
        times = psutil.cpu_times()._asdict()
        idle = times["idle"] + times.get("iowait", 0.0)
        total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)  # both are in `user`
        busy = self._rates.setdefault("busy", _Rate()).push(total - idle, total)
        return {} if busy is None else {"host_cpu_percent": min(100.0, 100.0 * busy)}

    def _node_ram(self) -> dict[str, float]:
        left = self._group.memory_available()
        host = psutil.virtual_memory().available
        return {"ram_available_gib": max(0, host if left is None else min(host, left)) / _GIB}

    def _node_network(self) -> dict[str, float]:
        """Sent and received, over hardware interfaces; in a container, which has none, over all but loopback."""
        cards = psutil.net_io_counters(pernic=True, nowrap=False)
        real = [name for name in cards if _is_hardware(f"/sys/class/net/{name}")]
        names = real or [name for name in cards if not name.startswith("lo")]
        return self._rate("net_mib_s", sum(cards[n].bytes_sent + cards[n].bytes_recv for n in names), 1 / _MIB)

    def _node_disks(self) -> dict[str, float]:
        """Read and written, over hardware disks: those that others are built on (LVM, RAID) would count twice."""
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        real = [io for name, io in disks.items() if _is_hardware(f"/sys/block/{name}")]
        return (
            self._rate("host_disk_mib_s", sum(io.read_bytes + io.write_bytes for io in real), 1 / _MIB) if real else {}
        )

    def _free_space(self) -> dict[str, float]:
        now = time.monotonic()
        if self._free is None or now - self._free[0] >= _DISK_EVERY_S:
            self._free = (now, psutil.disk_usage(self._folder).free / _GIB)
        return {"disk_free_gib": self._free[1]}


class _Rate:
    """Growth of a total over time."""

    def __init__(self):
        self._top: float | None = None
        self._at, self._below = 0.0, 0

    def push(self, total: float, now: float) -> float | None:
        """Growth for each unit of `now` since the call before; None at the first one.

        A total that falls has lost a process. Where its parent waits for it, the total comes back; so its highest is
        kept for a while, and nothing is counted twice.
        """
        before, elapsed = self._top, now - self._at
        self._at = now
        self._below = self._below + 1 if before is not None and total < before else 0
        if before is None or total >= before or self._below >= _PATIENCE:
            self._top = total
        if before is None or elapsed <= 0:
            return None
        return max(0.0, total - before) / elapsed


@functools.cache
def _is_hardware(device: str) -> bool:
    """Is this device of /sys a real one, and not built upon others?"""
    return os.path.exists(f"{device}/device")


def _existing(folder: str) -> str:
    """The folder, or the nearest one above it that exists."""
    path = Path(folder).absolute()
    return str(next(place for place in (path, *path.parents) if place.exists()))
