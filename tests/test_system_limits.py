"""What a control group grants, against made-up trees of version 1 and 2."""

import os
import sys
from pathlib import Path

import pytest
from system_run import host

from llamafactory_obs.callbacks.cgroup import ControlGroup, usable_cpus

GIB, MIB = 1 << 30, 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


# ---- control groups -------------------------------------------------------------------------------------------------


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def group(tmp_path, cgroup: str, files: dict[str, str]) -> ControlGroup:
    tree(tmp_path, {"proc/cgroup": cgroup, **{f"fs/{name}": text for name, text in files.items()}})
    return ControlGroup(tmp_path / "proc", tmp_path / "fs")


V2 = {
    "cpu.max": "max 100000",
    "a/memory.max": str(8 * GIB),
    "a/memory.current": str(5 * GIB),
    "a/memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file 7",
    "a/cpu.max": "350000 100000",
    "a/b/memory.max": "max",
    "a/b/memory.current": str(3 * GIB),
    "a/b/cpu.max": "max 100000",
}
V1 = {
    "memory/memory.limit_in_bytes": str(4 * GIB),
    "memory/memory.usage_in_bytes": str(4 * GIB),
    "memory/memory.stat": f"inactive_file 3\ntotal_inactive_file {GIB}",
    "cpu/cpu.cfs_quota_us": "200000",
    "cpu/cpu.cfs_period_us": "100000",
}


def test_the_tightest_group_above_counts(tmp_path):
    found = group(tmp_path, "0::/a/b", V2)
    assert (found.cpus, found.memory_limit, found.memory_available()) == (3.5, 8 * GIB, 5 * GIB)
    tree(tmp_path / "fs", {"a/b/memory.max": str(4 * GIB), "a/b/cpu.max": "50000 100000"})
    found = ControlGroup(tmp_path / "proc", tmp_path / "fs")
    assert (found.cpus, found.memory_limit, found.memory_available()) == (0.5, 4 * GIB, 1 * GIB)


def test_in_a_container_the_own_group_is_the_top(tmp_path):
    docker = "9:name=systemd:/docker/77\n4:memory:/docker/77\n3:cpu,cpuacct:/docker/77"
    found = group(tmp_path, docker, V1)
    assert (found.cpus, found.memory_limit, found.memory_available()) == (2.0, 4 * GIB, GIB)
    found = group(tmp_path / "v2", "0::/", {"memory.max": str(GIB), "memory.current": str(GIB // 4), "memory.stat": ""})
    assert found.memory_available() == GIB * 3 // 4


@pytest.mark.parametrize(
    "files", [{}, {"memory/memory.limit_in_bytes": str(2**63 - 4096), "cpu/cpu.cfs_quota_us": "-1"}]
)
def test_no_limit_is_none(tmp_path, files):
    found = group(tmp_path, "4:memory:/\n1:cpu:/", files)
    assert (found.cpus, found.memory_limit, found.memory_available()) == (None, None, None)
    assert usable_cpus(found) == len(os.sched_getaffinity(0))


def test_damaged_files_are_no_limit(tmp_path):
    found = group(tmp_path, "nonsense\n0::/a", {"a/memory.max": "lots", "a/cpu.max": "", "cpu.max": "1 0"})
    assert (found.cpus, found.memory_limit) == (None, None)
    assert usable_cpus(ControlGroup(tmp_path / "nowhere", tmp_path / "nowhere")) >= 1


def test_a_container_s_limit_is_what_is_available(tmp_path):
    load = host(tmp_path)
    load._group = group(tmp_path, "4:memory:/docker/77", V1)
    assert load.read()["ram_available_gib"] == pytest.approx(1.0)
    tree(tmp_path / "fs", {"memory/memory.usage_in_bytes": str(9 * GIB)})
    assert load.read()["ram_available_gib"] == 0
