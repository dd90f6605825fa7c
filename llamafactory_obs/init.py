"""`llamafactory-obs init`: the commented run configs and the probes, written into a folder of the user's."""

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
    written, kept = [], []
    for name, below in SOURCES.items():
        for source in sorted(data_folder(name).glob("*.yaml")):
            target = folder / below / source.name
            relative = (Path(below) / source.name).as_posix()
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists() and not force:
                    kept.append(relative)
                    continue
                target.write_bytes(source.read_bytes())
            except OSError as error:
                raise ConfigError(f"cannot write {target}: {error.strerror}; name a folder you may write to") from None
            written.append(relative)
    config = (folder / CONFIG).as_posix()
    steps = ["llamafactory-obs doctor", f"llamafactory-obs baseline {config}"]
    steps += [f"llamafactory-obs preflight {config} --run-smoke", f"llamafactory-cli train {config}"]
    return {"folder": str(folder), "written": written, "kept": kept, "next": steps}


def render(result: dict) -> str:
    """What was done and what to do next."""
    lines = [text("init.wrote", name=name) for name in result["written"]]
    lines += [text("init.kept", name=name) for name in result["kept"]]
    lines += ["", text("init.next", config=result["next"][-1].split()[-1])]
    return "\n".join(lines + [f"  {command}" for command in result["next"]])
