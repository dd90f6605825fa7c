"""The drill's own folder: new, with room on its disk, and without the trainings when it is over."""

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ...errors import ConfigError
from ...preflight.ahead.disk import GIB, existing, save_size
from ...preflight.run_config import RunConfig
from .plan import AGAIN, BROKEN, UNBROKEN, Plan

#: what a save takes beside its tensors, and the records, as a factor
_SPARE = 1.1


def default_folder(config: RunConfig) -> Path:
    """`<output_dir>-drill/resume-<time>`."""
    output_dir = str(config.given.get("output_dir") or "trainer_output").rstrip("/")
    return Path(f"{output_dir}-drill") / f"resume-{time.strftime('%Y%m%d-%H%M%S')}"


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        ConfigError: it is not new and not empty.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"--out {folder} is no folder; give a new one")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"--out {folder} is not empty: nothing is written there; give a new folder")


def check_room(plan: Plan) -> str:
    """Compare the free disk with what the drill needs at its fullest: when the last training ends.

    Returns:
        A note where it is not known; else an empty text.

    Raises:
        ConfigError: they do not fit.
    """
    try:
        size = save_size(plan.config)
    except ConfigError as error:
        return f"how much disk the drill needs is not known: {error}"
    where = existing(plan.folder)
    free = shutil.disk_usage(where).free
    saves = math.ceil(plan.total / plan.steps)
    checkpoints, models = (3 * saves, 3) if plan.keep else (2 + saves, 1)
    needed = int((checkpoints * (size.weights + size.state) + models * size.weights) * _SPARE)
    if needed > free:
        text = f"the drill needs {needed / GIB:.1f} GiB for its checkpoints, {where} has {free / GIB:.1f} GiB free"
        raise ConfigError(f"{text}; give a folder on a larger disk with --out")
    return ""


@contextlib.contextmanager
def drill_folder(plan: Plan) -> Iterator[None]:
    """Make the folder; at the end the trainings' own folders go away, after an interruption all that was made.

    Raises:
        ConfigError: it cannot be made.
    """
    made = [folder for folder in (plan.folder, plan.folder.parent) if not folder.exists()]
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{plan.folder} cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if not plan.keep:
            _remove_all(plan, made)
        raise
    plan.told.unlink(missing_ok=True)
    if not plan.keep:
        for name in (UNBROKEN, BROKEN, AGAIN):
            shutil.rmtree(plan.output_dir(name), ignore_errors=True)


def prune(plan: Plan, name: str) -> None:
    """Of a training that has ended only the last checkpoint is looked at: the rest makes room for the next one."""
    if plan.keep:
        return
    for one in plan.output_dir(name).iterdir():
        if one.name.startswith("checkpoint-") and one != plan.checkpoint(name, plan.total):
            shutil.rmtree(one, ignore_errors=True)
        elif one.suffix in (".safetensors", ".bin", ".pt"):
            one.unlink(missing_ok=True)


def _remove_all(plan: Plan, made: list[Path]) -> None:
    for one in plan.folder.iterdir():
        shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink(missing_ok=True)
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()
