"""Takes one part from the drill's own checkpoint, so that a resume has to do without it."""

import shutil
from pathlib import Path

from ...checkpoint.resume_state import layout_of
from ...errors import ConfigError
from ...preflight.run_config import RunConfig

_FILES = {
    "optimizer": ("optimizer.pt", "optimizer.bin", "optimizer_0"),
    "scheduler": ("scheduler.pt",),
    "rng": ("rng_state*.pth",),
}


def check(config: RunConfig, part: str | None) -> None:
    """Say before any training what cannot be taken away.

    Raises:
        ConfigError: DeepSpeed keeps it in the shards that it cannot load without it.
    """
    if part in ("optimizer", "scheduler") and config.given.get("deepspeed"):
        raise ConfigError(f"--take-away {part}: DeepSpeed keeps it in its own shards and does not resume without it")


def take_away(checkpoint: Path, part: str) -> list[str]:
    """Delete the files of a part (for the data order there are none) and return their names.

    Raises:
        ConfigError: there is nothing to take: the checkpoint does not have it as a file of its own.
    """
    if part == "data_order":
        return []
    found = sorted(one for pattern in _FILES[part] for one in checkpoint.glob(pattern))
    if not found:
        layout = layout_of(checkpoint)
        raise ConfigError(f"--take-away {part}: {checkpoint.name} ({layout}) has no file of its own for it")
    for one in found:
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    return [one.name for one in found]
