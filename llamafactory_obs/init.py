"""`llamafactory-obs init`: the commented run configs and the probes, written into a folder of the user's."""

import errno
import os
from pathlib import Path

from .errors import ConfigError
from .texts import text

#: folder of data at the repository's top (inside the package in a wheel) -> folder below the target
SOURCES = {"yaml_templates": ".", "probes": "probes"}
#: the config that the next commands are said for
CONFIG = "full_without_vllm.yaml"


def data_folder(name: str) -> Path:
    """The folder `yaml_templates` or `probes`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def write(folder: str | Path = ".", force: bool = False) -> dict:
    """Write the files; one that exists is kept unless `force` is given.

    Returns:
        `{"folder", "written": [path, ...], "kept": [path, ...], "next": [command, ...]}`, paths relative to the folder.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    folder = Path(folder)
    sources = {
        (Path(below) / source.name).as_posix(): source
        for name, below in SOURCES.items()
        for source in sorted(data_folder(name).glob("*.yaml"))
    }
    try:
        kept = [name for name in sources if (folder / name).exists() and not force]
        written = [name for name in sources if name not in kept]
        for name in written:  # before the first file is written
            _make_room(folder / name)
        for name in written:
            (folder / name).write_bytes(sources[name].read_bytes())
    except OSError as error:
        where = error.filename or folder
        raise ConfigError(f"cannot write {where}: {error.strerror}; name a folder you may write to") from None
    config = (folder / CONFIG).as_posix()
    steps = ["llamafactory-obs doctor", f"llamafactory-obs baseline {config}"]
    steps += [f"llamafactory-obs preflight {config} --run-smoke", f"llamafactory-cli train {config}"]
    return {"folder": str(folder), "written": written, "kept": kept, "next": steps}


def _make_room(target: Path) -> None:
    """The folder of a file that is to be written; raises OSError where the file could not be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))


def render(result: dict) -> str:
    """What was done and what to do next."""
    lines = [text("init.wrote", name=name) for name in result["written"]]
    lines += [text("init.kept", name=name) for name in result["kept"]]
    lines += ["", text("init.next", config=result["next"][-1].split()[-1])]
    return "\n".join(lines + [f"  {command}" for command in result["next"]])
