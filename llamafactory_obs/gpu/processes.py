"""The bare name of a process on the GPU, where it can be told safely."""

import os
from pathlib import Path

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # Linux: PROC_PID_INIT_INO, include/linux/proc_ns.h


def pids_are_ours() -> bool:
    """Whether NVML's pids (the host's) mean the same here: False inside a container with its own pid namespace.

    There a host pid would name some unrelated process of the container.
    """
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return not Path("/proc/self/ns").exists()  # not Linux: no such namespaces


def process_name(pid: int) -> str | None:
    """The name of a process, without path or arguments (those may hold secrets); None where unknown."""
    if not pids_are_ours():
        return None
    try:
        import psutil

        return os.path.basename(psutil.Process(pid).name()) or None
    except Exception:
        return None
