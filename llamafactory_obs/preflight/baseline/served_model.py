"""Is what a vLLM server serves the base model of this config?"""

import re
from pathlib import Path

from ...checkpoint.files import Incomplete, read_header
from ...identity.files import sha256_file
from ...identity.model import WEIGHTS, find_folder
from ...probe.backends.vllm import VllmServer
from ...texts import text
from .base_model import BaseModel

#: bytes
_PIECE = 4096
_SNAPSHOT = re.compile(r"models--([^/]+)/snapshots/[0-9a-f]{40}")


def serves(server: VllmServer, base: BaseModel) -> tuple[bool, str, bool]:
    """Whether it is the same model, how that is known (one line), and whether files were compared.

    A folder that both can see is compared by its files; else the names decide: a hub name whole, a path by its last
    part or by the name that the server gives it (`--served-model-name`).
    """
    said = text("baseline.served.serves", root=server.root) + (
        text("baseline.served.as_name", base=server.base) if server.base != server.root else ""
    )
    wanted = text("baseline.served.wanted", name=base.name)
    here = find_folder(server.root, None, None)
    if here is not None and base.folder is not None:
        if here.samefile(base.folder):
            return True, text("baseline.served.same", said=said), True
        try:
            why = differs(here, base.folder)
        except OSError as error:
            why = text("baseline.served.unreadable", file=error.filename, error=error.strerror)
        if not why:
            return True, text("baseline.served.same_files", said=said, name=base.name), True
        return False, text("baseline.served.because", said=said, wanted=wanted, why=why), True
    for name in (server.root, server.base):
        if _same_name(name, base.name):
            return True, text("baseline.served.by_name", said=said), False
    return False, text("baseline.served.other", said=said, wanted=wanted), False


def differs(one: Path, other: Path) -> str:
    """In what two folders of a model differ, "" where in nothing that is looked at.

    Of safetensors files the header and the first and last 4 KiB of each tensor are read: a tuned copy of a model has
    the base model's sizes and often its config.json, but no tensor that was trained keeps 2048 values of it. Other
    files are read whole.
    """
    if _config(one) != _config(other):
        return text("baseline.served.other_config")
    files = [{file.name: file for file in folder.iterdir() if WEIGHTS.fullmatch(file.name)} for folder in (one, other)]
    if {name: file.stat().st_size for name, file in files[0].items()} != {
        name: file.stat().st_size for name, file in files[1].items()
    }:
        return text("baseline.served.other_files")
    return next(
        (
            text("baseline.served.other_weights", name=name)
            for name in files[0]
            if _sample(files[0][name]) != _sample(files[1][name])
        ),
        "",
    )


def _config(folder: Path) -> str | None:
    config = folder / "config.json"
    return sha256_file(config) if config.is_file() else None


def _sample(file: Path) -> list | str:
    """The header and the ends of each tensor; the whole file's hash where it is no safetensors file."""
    try:
        first, header = read_header(file)
    except Incomplete:
        return sha256_file(file)
    pieces: list = [header]
    with open(file, "rb") as handle:
        for name in sorted(header.keys() - {"__metadata__"}):
            start, end = header[name]["data_offsets"]
            for at in (start, max(start, end - _PIECE)):
                handle.seek(first + at)
                pieces.append(handle.read(min(_PIECE, end - at)))
    return pieces


def _same_name(one: str, other: str) -> bool:
    a, b = (_readable(name).lower() for name in (one, other))
    if _is_hub_name(a) and _is_hub_name(b):
        return a == b
    return a.rsplit("/", 1)[-1] == b.rsplit("/", 1)[-1]


def _readable(name: str) -> str:
    """The hub name of a folder in the hub's cache, else the name without a slash at its end."""
    found = _SNAPSHOT.search(name)
    return found[1].replace("--", "/", 1) if found else name.rstrip("/")


def _is_hub_name(name: str) -> bool:
    return re.fullmatch(r"[\w.\-]+/[\w.\-]+", name) is not None and not name.startswith(".")
