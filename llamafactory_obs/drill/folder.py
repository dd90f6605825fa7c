"""A drill's own folder: new, with room on its disk, and without anything when the drill is interrupted."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import ConfigError
from ..preflight.ahead.disk import GIB, existing
from ..preflight.run_config import RunConfig


def default_folder(config: RunConfig, name: str) -> Path:
    """`<output_dir>-drill/<name>-<time>`."""
    output_dir = str(config.given.get("output_dir") or "trainer_output").rstrip("/")
    return Path(f"{output_dir}-drill") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        ConfigError: it is not new and not empty.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"--out {folder} is no folder; give a new one")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"--out {folder} is not empty: nothing is written there; give a new folder")


def require_room(folder: Path, needed: int, what: str) -> None:
    """Compare the free disk with what the drill needs at its fullest, bytes.

    Raises:
        ConfigError: it does not fit.
    """
    where = existing(folder)
    free = shutil.disk_usage(where).free
    if needed > free:
        text = f"the drill needs {needed / GIB:.1f} GiB for {what}, {where} has {free / GIB:.1f} GiB free"
        raise ConfigError(f"{text}; give a folder on a larger disk with --out")


@contextlib.contextmanager
def drill_folder(folder: Path, keep: bool) -> Iterator[None]:
    """Make the folder; after an interruption all that was made goes away, unless it is to be kept.

    Raises:
        ConfigError: it cannot be made.
    """
    made = [one for one in (folder, folder.parent) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if not keep:
            _remove_all(folder, made)
        raise


def _remove_all(folder: Path, made: list[Path]) -> None:
    for one in folder.iterdir():
        shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink(missing_ok=True)
    for one in made:
        with contextlib.suppress(OSError):
            one.rmdir()
