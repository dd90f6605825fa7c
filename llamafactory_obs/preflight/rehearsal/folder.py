"""The folder of a smoke run: ours and nobody else's, and what stands in its marker file."""

import json
import re
import shutil
from pathlib import Path

from ...errors import ConfigError
from ..run_config import RunConfig

#: marks a folder as that of a smoke run
MARKER = "smoke_run.json"

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
#: keys whose paths must not lie in a folder that is emptied
_PATHS = ("output_dir", "model_name_or_path", "adapter_name_or_path", "dataset_dir", "media_dir", "tokenized_path")


def read_marker(folder: Path) -> dict | None:
    """The marker of a smoke run's folder; None where it is none."""
    try:
        content = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("kind") == "smoke" else None


def write_marker(folder: Path, content: dict) -> None:
    """Write the marker in one go: a reader sees the old or the new one."""
    new = folder / f"{MARKER}.new"
    try:
        new.write_text(json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n", encoding="utf-8")
        new.replace(folder / MARKER)
    except OSError as error:
        raise ConfigError(f"{folder / MARKER} cannot be written: {error.strerror}") from None


def check_folder(config: RunConfig, folder: Path) -> None:
    """Refuse every folder but a new one, an empty one, or that of an earlier smoke run.

    Raises:
        ConfigError: it is another's, or holds what the config needs.
    """
    where = folder.resolve()
    for key in ("config", *_PATHS):
        value = config.path if key == "config" else config.given.get(key)
        for path in _paths(value):
            if path == where or where in path.parents:
                name = "the config itself" if key == "config" else key
                raise ConfigError(f"{folder} cannot hold the smoke run: {name} lies in it; give another folder")
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} cannot hold the smoke run: it is a file; give another folder")
    marker = read_marker(folder)
    if marker is None:
        if any(folder.iterdir()):
            raise ConfigError(
                f"{folder} is not empty and no smoke run's: nothing is written there; give another folder"
            )
        return
    others = [one.name for one in folder.iterdir() if (m := _CHECKPOINT.fullmatch(one.name)) and _foreign(m, marker)]
    if others:
        raise ConfigError(f"{folder} holds {others[0]}, which its smoke run did not make; give another folder")


def prepare(folder: Path) -> None:
    """Make the folder, or empty that of an earlier smoke run (`check_folder` has looked).

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in sorted(folder.iterdir(), key=lambda one: one.name == MARKER):  # the marker last
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be written: {error.strerror}") from None


def _paths(value: object) -> list[Path]:
    if isinstance(value, Path):
        return [value.resolve()]
    if isinstance(value, (list, tuple)):
        return [path for one in value for path in _paths(one)]
    if not isinstance(value, str):
        return []
    return [Path(one.strip()).expanduser().resolve() for one in value.split(",") if one.strip()]


def _foreign(name: re.Match, marker: dict) -> bool:
    return int(name[1]) != marker.get("steps")
