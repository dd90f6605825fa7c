"""`read`: any training log, a file or a folder, as Curves."""

from pathlib import Path

from ..errors import ConfigError
from ..record.reader import has_record
from ..record.schema import EVENTS, FOLDER, LAYERS, PROBES, RUN, STEPS
from .assemble import assemble
from .curves import Curves
from .folder import checkpoints, read_folder
from .raw import read_raw
from .record import read_record
from .settings import beside

_OF_RECORD = (STEPS, EVENTS, RUN, LAYERS, PROBES)


def read(path: str | Path) -> Curves:
    """Read a log by its content.

    Args:
        path: a run's output folder, its `obs/` folder, or one file: `trainer_log.jsonl`, `trainer_state.json`,
            `logging.jsonl`, a console log. A file of a record stands for the record.

    Raises:
        ConfigError: there is no log, in one line.
    """
    path = Path(path)
    try:
        if path.is_dir():
            curves = read_folder(path)
            folder = path.parent if path.name == FOLDER and curves.source == "obs" else path
        elif not path.exists():
            raise ConfigError(f"{path}: no such file or folder")
        elif not path.is_file():
            raise ConfigError(f"{path} is no regular file (a pipe or a device): write it to a file first")
        elif path.name in _OF_RECORD and has_record(path.parent):
            curves, folder = read_record(path.parent), path.parent.parent
        else:
            curves, folder = assemble(path, read_raw(path), beside(path.parent)[0]), path.parent
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a null byte in the name
        raise ConfigError(f"{str(path)!r}: {error}") from None
    curves.path, curves.checkpoints = path, checkpoints(folder)
    return curves
