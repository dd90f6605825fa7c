"""Where a drill happens: the device that its trainings use, and whether its folder lies on a disk."""

import os
import sys
import tempfile
from pathlib import Path

from ...preflight.run_config import RunConfig


def unfit_device(name: str, config: RunConfig) -> str:
    """Why `oom` cannot be made here, as the name of a text; empty where it can: on CUDA, and on a CPU with Linux."""
    if name != "oom":
        return ""
    from llamafactory.extras.misc import get_current_device

    kind = "cpu" if config.given.get("use_cpu") else get_current_device().type
    return "" if kind == "cuda" or (kind == "cpu" and sys.platform.startswith("linux")) else "unfit.oom"


def in_memory(folder: Path) -> bool:
    """Does what is written there never reach a disk (tmpfs)? Tried out with 4 MiB; False where it cannot be told."""
    import psutil

    process = psutil.Process()
    if not hasattr(process, "io_counters"):
        return False
    block = os.urandom(4 << 20)
    before = process.io_counters().write_bytes
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".written-") as file:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return process.io_counters().write_bytes - before < len(block) // 2
