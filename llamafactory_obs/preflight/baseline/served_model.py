"""Is what a vLLM server serves the base model of this config?"""

import re
from pathlib import Path

from ...identity.files import sha256_file
from ...identity.model import WEIGHTS, find_folder
from ...probe.backends.vllm import VllmServer
from .base_model import BaseModel

_SNAPSHOT = re.compile(r"models--([^/]+)/snapshots/[0-9a-f]{40}")


def serves(server: VllmServer, base: BaseModel) -> tuple[bool, str]:
    """Whether it is the same model, and how that is known, one line.

    A folder that both can see is compared by its files; else the names decide: a hub name whole, a path by its last
    part or by the name that the server gives it (`--served-model-name`).
    """
    said = f"the server serves {server.root}" + (f" as {server.base}" if server.base != server.root else "")
    wanted = f"the config's base model is {base.name}"
    here = find_folder(server.root, None, None)
    if here is not None and base.folder is not None:
        if here.samefile(base.folder):
            return True, f"{said}, which is the config's base model"
        if _sizes(here) == _sizes(base.folder):
            return True, f"{said}, whose config.json and sizes of weights are those of {base.name}"
        return False, f"{said}, {wanted}"
    for name in (server.root, server.base):
        if _same_name(name, base.name):
            return True, f"{said}, the config's base model by its name (its files cannot be compared from here)"
    return False, f"{said}, {wanted}"


def _sizes(folder: Path) -> tuple:
    config = folder / "config.json"
    weights = {one.name: one.stat().st_size for one in folder.iterdir() if WEIGHTS.fullmatch(one.name)}
    return (sha256_file(config) if config.is_file() else None), weights


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
