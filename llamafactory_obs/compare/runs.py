"""The runs that are compared, each read once."""

import string
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from ..record.schema import FOLDER
from ..summary import Price, load, summarize
from .model import Run

MOST = len(string.ascii_uppercase)


def read_runs(paths: Sequence[Path], price: Price | None = None) -> list[Run]:
    """Read runs: output folders, or any log that `diagnose` reads.

    Args:
        price: of the machine; None: what each run's own settings say.

    Raises:
        ConfigError: fewer than two or too many, a path without a log, or a log that is not of a training.
    """
    if len(paths) < 2:
        raise ConfigError("compare needs two runs or more; name another output folder or log")
    if len(paths) > MOST:
        raise ConfigError(f"compare takes at most {MOST} runs, not {len(paths)}")
    runs = []
    for letter, path, name in zip(string.ascii_uppercase, paths, _names(paths), strict=False):
        loaded = load(path)
        curves = loaded.curves
        if curves.kind == "not_a_training_log":
            raise ConfigError(f"{path}: not the log of a training; name a run's output folder or its log")
        if not len(curves):
            raise ConfigError(f"{path}: a log without rows: nothing has been logged in it yet")
        summary = summarize(loaded)
        runs.append(Run(letter, name, path, loaded.record, curves, summary, price or summary.price))
    return runs


def _names(paths: Sequence[Path]) -> list[str]:
    """For each path as many of its last parts as tell it from the others."""
    parts = [_parts(path) for path in paths]
    names = []
    for own in parts:
        others = [other for other in parts if other != own]
        count = 1
        while count < len(own) and any(other[-count:] == own[-count:] for other in others):
            count += 1
        names.append("/".join(own[-count:]))
    return names


def _parts(path: Path) -> tuple[str, ...]:
    path = path.absolute()
    if path.name == FOLDER:
        path = path.parent
    return tuple(part for part in path.parts if part != path.anchor) or (str(path),)
