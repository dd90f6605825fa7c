"""Which start of training (segment) a rank's rows belong to: told by rank 0, without a collective."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ..record.reader import has_record, read_rows
from ..record.samples import samples_file
from ..record.writer import RecordWriter

_KEY = "llamafactory_obs/samples/segment"


def tell_segment(segment: int) -> None:
    """On rank 0, before its first step: the others read it after theirs, when the ranks' gradients have met."""
    store = _store()
    if store is not None:
        store.set(_KEY, str(segment))


def told_segment() -> int | None:
    """On another rank, after its first step; None where there is nobody to tell."""
    store = _store()
    with contextlib.suppress(Exception):
        if store is not None and store.check([_KEY]):
            return int(store.get(_KEY))
    return None


def _store():
    """The key-value store of the process group; None where there is none."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return None
    with contextlib.suppress(Exception):
        return dist.distributed_c10d._get_default_store()
    return None


def rank_writer(
    output_dir: str | os.PathLike,
    rank: int,
    segment: int | None,
    continues: bool,
    on_error: Callable[[str | None], None],
) -> RecordWriter:
    """The writer of one rank's own file.

    On a node that does not share the record's folder with rank 0 nobody else sets an older run's file aside and nobody
    says which segment it is.

    Args:
        segment: as told by rank 0, None where it could not be.
        continues: this start adds to the record that lies there.
        on_error: see `RecordWriter`.
    """
    writer = RecordWriter.joining(output_dir, on_error)
    file = writer.folder / samples_file(rank)
    if rank and not has_record(writer.folder):
        if not continues and file.is_file():
            _set_aside(file)
        rows, _ = read_rows(file, tail_bytes=1 << 20)
        writer.segment = max((row.get("segment", 0) for row in rows), default=-1) + 1
    if segment is not None:
        writer.segment = segment
    return writer


def _set_aside(file: Path) -> None:
    target = file.parent / "archive" / time.strftime("%Y%m%d-%H%M%S")
    target.mkdir(parents=True, exist_ok=True)
    number = 1
    while (target / file.name).exists():
        number += 1
        target = target.with_name(f"{target.name.split('.')[0]}.{number}")
        target.mkdir(parents=True, exist_ok=True)
    shutil.move(file, target / file.name)
