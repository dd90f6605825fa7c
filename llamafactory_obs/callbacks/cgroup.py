"""What a container or a job grants of the machine: a rented one sees the host's RAM and CPUs, and has a part of them.

Control groups nest. Every group from that of this process up to the top of what is mounted may have a limit; the
tightest one counts. In a container the path of the process is often that of the host and does not exist here: then its
own group is the top.
"""

import os
from pathlib import Path

#: version 1 writes a number near 2**63 for "no limit"
_NO_LIMIT = 1 << 60


class ControlGroup:
    """The limits of this process' control groups (Linux, versions 1 and 2); elsewhere nothing is limited.

    Args:
        process: the folder of the process in /proc.
        mount: where control groups are mounted.
    """

    def __init__(self, process: Path = Path("/proc/self"), mount: Path = Path("/sys/fs/cgroup")):
        paths = dict(_groups(_read(process / "cgroup")))
        v2 = paths.get("", "/")
        self._memory = [
            *_memory(_levels(mount, v2), "memory.max", "memory.current", "inactive_file"),
            *_memory(
                _levels(mount / "memory", paths.get("memory", "/")),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        ]
        quotas = [_quota_v2(level) for level in _levels(mount, v2)]
        quotas += [_quota_v1(level) for level in _levels(mount / "cpu", paths.get("cpu", "/"))]
        self.cpus: float | None = min(filter(None, quotas), default=None)
        """CPUs that the quota grants; None for no quota."""

    @property
    def memory_limit(self) -> int | None:
        """Bytes that the tightest group grants; None for no limit."""
        return min((limit for limit, *_ in self._memory), default=None)

    def memory_available(self) -> int | None:
        """Bytes that can still be taken before the out-of-memory killer comes; None for no limit.

        Limit - (usage - inactive file cache), as Kubernetes counts a container's working set: that cache is given back
        first.
        """
        left = []
        for limit, usage, stat, field in self._memory:
            used = _number(_read(usage))
            if used is not None:
                left.append(limit - max(0, used - _field(_read(stat), field)))
        return min(left, default=None)


def usable_cpus(group: ControlGroup) -> float:
    """CPUs that this process may use: its affinity, or the quota where that is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return float(affinity) if group.cpus is None else min(float(affinity), group.cpus)


def _groups(text: str | None):
    """(controller, path) of each line of /proc/self/cgroup; version 2 has no controller's name."""
    for line in (text or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            yield name, path


def _levels(mount: Path, path: str) -> list[Path]:
    """The folders from the group of the process up to the top, those that exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def _memory(levels: list[Path], limit: str, usage: str, field: str) -> list[tuple[int, Path, Path, str]]:
    """(bytes, file of the usage, file with the cache, its field) of each level that has a limit."""
    limits = [(_number(_read(level / limit)), level) for level in levels]
    return [
        (number, level / usage, level / "memory.stat", field)
        for number, level in limits
        if number is not None and number < _NO_LIMIT
    ]


def _quota_v2(level: Path) -> float | None:
    quota, _, period = (_read(level / "cpu.max") or "").partition(" ")
    return _ratio(_number(quota), _number(period))


def _quota_v1(level: Path) -> float | None:
    return _ratio(*(_number(_read(level / f"cpu.cfs_{part}_us")) for part in ("quota", "period")))


def _ratio(quota: int | None, period: int | None) -> float | None:
    return quota / period if quota and period and quota > 0 else None


def _field(text: str | None, name: str) -> int:
    rows = (line.split() for line in (text or "").splitlines())
    return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == name), 0)


def _number(text: str | None) -> int | None:
    """None for "max" and whatever else is no number."""
    try:
        return int(text or "")
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
