"""The file of a recorded baseline: `RUN.baseline.json` beside the run config."""

import json
import os
import tempfile
import time
from pathlib import Path

from ...errors import ConfigError
from ...probe.judge import LAYERS
from ...probe.results import verdict_of
from ...probe.scores import scores
from ..run_config import RunConfig

KIND = "llamafactory-obs baseline"
_SECTIONS = {"suite": dict, "model": dict, "rendering": dict, "sampling": dict, "backend": dict}
_SECTIONS |= {"scores": dict, "can_judge": dict, "probes": list, "notes": list}


class Damaged(Exception):
    """The file is no baseline any more; in one line, why."""


class Foreign(Damaged):
    """It is somebody else's file."""


def place(config: RunConfig) -> Path:
    """Where the baseline of a config is recorded."""
    named = config.settings.baseline
    return (
        named if named is not None and is_record(named) else config.path.with_name(f"{config.path.stem}.baseline.json")
    )


def is_record(path: Path) -> bool:
    """By its name: a record, or else a table filled in by hand."""
    return path.suffix.lower() == ".json"


def read(path: Path) -> dict:
    """A record whose sections have the right types and whose scores are those of its probes; sections may be missing.

    Raises:
        FileNotFoundError: there is none.
        Damaged: what is wrong with it.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"it cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is no whole JSON ({' '.join(str(error).split())[:120]})") from None
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise Foreign("it is JSON, but no baseline of llamafactory-obs")
    for name, kind in _SECTIONS.items():
        if name in record and not isinstance(record[name], kind):
            raise Damaged(f"its {name!r} is no {'mapping' if kind is dict else 'list'}")
    _check_scores(record)
    return record


def _check_scores(record: dict) -> None:
    counted = {layer: one for layer, one in (record.get("scores") or {}).items() if one is not None}
    record["scores"] = counted
    for layer in [layer for layer in LAYERS if layer in counted]:
        one = counted[layer]
        numbers = [one.get("right"), one.get("of")] if isinstance(one, dict) else [None]
        if not all(type(number) is int for number in numbers) or not 0 <= numbers[0] <= numbers[1]:
            raise Damaged(f"its score for {layer} is {str(one)[:60]}, not so many right of so many")
    rows = record.get("probes")
    if rows is None:
        raise Damaged("its 'probes', the answers that the scores are counted from, are missing")
    try:
        again = scores({row["probe"]: verdict_of(row) for row in rows})
    except (KeyError, TypeError, AttributeError):
        raise Damaged("one of its probes is not whole") from None
    for layer in LAYERS:
        told, found = (f"{one['right']}/{one['of']}" for one in (counted.get(layer, again[layer]), again[layer]))
        if told != found:
            raise Damaged(f"its score for {layer} is {told}, its probes give {found}")


def writable(path: Path) -> None:
    """Said before anything is generated.

    Raises:
        ConfigError: a record cannot go there, or another file is there.
    """
    if not is_record(path):
        raise ConfigError(f"{path}: a baseline is recorded to a .json file (a table by hand is not written to)")
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path} {'is a folder' if path.is_dir() else f'cannot be made: no folder {path.parent}'}")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written: no right to write in {path.parent}; name another place by --out")
    try:
        read(path)
    except Foreign as error:
        raise ConfigError(f"{path} is not overwritten: {error}; name another place by --out") from None
    except (FileNotFoundError, Damaged):
        pass  # a damaged one is kept under another name


def write(path: Path, record: dict) -> Path | None:
    """Write it whole or not at all; what was there is kept.

    Returns:
        Where the earlier one is now, None where there was none.

    Raises:
        ConfigError: it cannot be written.
    """
    path = path.resolve()  # a link stays a link
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=1, ensure_ascii=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        kept = _keep(path) if path.exists() else None
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    return kept


def _keep(path: Path) -> Path:
    """Rename a file by its date; `RUN.baseline.20260131-120000.json`."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(path.stat().st_mtime))
    names = (f"{path.stem}.{stamp}{more}{path.suffix}" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    kept = next(one for name in names if not (one := path.with_name(name)).exists())
    return path.rename(kept)
