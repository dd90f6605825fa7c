"""What a folder holds: our record, else what LlamaFactory and the Trainer leave in an output_dir, joined."""

import re
from pathlib import Path

from ..errors import ConfigError
from ..record.reader import has_record
from ..record.schema import FOLDER, STEPS
from .assemble import assemble
from .curves import Curves
from .join import join
from .raw import read_raw
from .record import read_record
from .settings import beside

STATE, LOG = "trainer_state.json", "trainer_log.jsonl"
KNOWN = ("logging.jsonl", "running_log.txt")
LIKELY = (".jsonl", ".json", ".log", ".out", ".err", ".txt")
MOST_FILES = 50
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def read_folder(folder: Path) -> Curves:
    """Curves of an output folder, or of its `obs/` folder.

    Raises:
        ConfigError: there is no log in it, or several of which none is known by its name.
    """
    record = next((place for place in (folder / FOLDER, folder) if has_record(place)), None)
    if record is not None and (record / STEPS).is_file():
        return read_record(record)
    curves = _joined(folder) or _only_one(folder)
    if record is not None:
        bare = read_record(record)
        if curves is None:
            return bare
        curves.events, curves.probes, curves.run = bare.events, bare.probes, bare.run
        curves.settings = bare.settings or curves.settings
    if curves is None:
        looked_for = ", ".join((f"{FOLDER}/{STEPS}", LOG, f"{STATE} (also in checkpoint-N)", *KNOWN))
        raise ConfigError(f"{folder}: no log here; looked for {looked_for} and for one other file that is a log")
    return curves


def checkpoints(folder: Path) -> dict[int, Path]:
    """step -> path of the `checkpoint-N` folders in this folder, by step; beside it where it is one of them."""
    if _CHECKPOINT.fullmatch(folder.absolute().name):
        folder = folder.absolute().parent
    try:
        paths = [path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return {}
    return dict(sorted((int(path.name.partition("-")[2]), path) for path in paths))


def _joined(folder: Path) -> Curves | None:
    """The files that are known by their names. One that is broken is a note where another can be read."""
    states = [folder / STATE, *(path / STATE for path in reversed(checkpoints(folder).values()))]
    settings, source = beside(folder)
    curves, problems = [], []
    for files in ([folder / LOG], states, [folder / name for name in KNOWN]):
        if curves and files[0].name in KNOWN:
            break
        for file in filter(Path.is_file, files):
            try:
                curves.append(assemble(file, read_raw(file), settings))
                break
            except ConfigError as error:
                problems.append(str(error))
    if not curves:
        if problems:
            raise ConfigError("; ".join(problems))
        return None
    result = join(*curves) if len(curves) > 1 else curves[0]
    result.notes += problems
    if source:
        result.notes.append(f"settings from {source}")
    return result


def _only_one(folder: Path) -> Curves | None:
    """The one file whose content is a log, whatever it is called."""
    settings, _ = beside(folder)
    found = []
    files = sorted(file for file in folder.iterdir() if file.suffix in LIKELY and file.is_file())
    for file in files[:MOST_FILES]:
        try:
            curves = assemble(file, read_raw(file), settings)
        except ConfigError:
            continue
        if curves.kind != "not_a_training_log":
            found.append(curves)
    if len(found) > 1:
        names = ", ".join(curves.path.name for curves in found[:5])
        raise ConfigError(f"{folder}: {len(found)} logs here ({names}); name one of them")
    if not found:
        return None
    found[0].notes.append(f"read from {found[0].path.name}")
    return found[0]
