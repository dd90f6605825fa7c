"""The order of the data by the log of samples: the same ones at the same step, and none of an epoch twice."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..record.reader import read_rows
from ..record.samples import sample_files
from .said import DIFFERS, EQUAL, GOES_ON, UNKNOWN, Column, Said

#: rows of an epoch that may be there again at its end: samplers fill up the last batch of each rank
_FILLED_UP = 2


@dataclass(frozen=True)
class Samples:
    """What the log of samples says of one resume.

    Attributes:
        same, other: steps that were made twice with the same samples, and with others.
        first: the first of those with others.
        seen: samples after the resume that belong to the epoch it broke off in; `repeated`: those of them that had been
            used in it already.
    """

    same: int = 0
    other: int = 0
    first: int | None = None
    seen: int = 0
    repeated: int = 0


def read_order(folder: Path, segment: int, steps: range, epochs: dict[int, float], tail_bytes: int) -> Samples | None:
    """Compare what a start of training (segment) was given with what earlier ones were.

    Args:
        folder: the `obs/` folder.
        steps: those after the resume that are looked at.
        epochs: step -> epoch, where known: borders of epochs.
        tail_bytes: of each file, read at most this much from the end.

    Returns:
        None where its samples were not logged.
    """
    mine: dict[int, dict[int, tuple]] = {}
    old: dict[int, dict[int, tuple[int, tuple]]] = {}
    for rank, file in sample_files(folder).items():
        for row in read_rows(file, tail_bytes=tail_bytes)[0]:
            step, start = row.get("step"), row.get("segment", 0)
            if row.get("incomplete") or not isinstance(step, int) or "micro_batches" not in row or start > segment:
                continue
            if start == segment and step in steps:
                mine.setdefault(step, {})[rank] = _identity(row["micro_batches"])
            elif start < segment and start >= old.get(step, {}).get(rank, (-1,))[0]:
                old.setdefault(step, {})[rank] = (start, _identity(row["micro_batches"]))
    if not mine:
        return None
    same, others = 0, []
    for step in sorted(mine.keys() & old.keys()):
        ranks = mine[step].keys() & old[step].keys()
        if not ranks:
            continue
        if len(mine[step]) == len(old[step]) and all(mine[step][rank] == old[step][rank][1] for rank in ranks):
            same += 1
        else:
            others.append(step)
    seen, repeated = _repeated(mine, old, steps.start, epochs)
    return Samples(same, len(others), others[0] if others else None, seen, repeated)


def order(samples: Samples | None) -> Column:
    """As a column of the verdict."""
    if samples is None:
        return Column("samples", UNKNOWN, Said("samples.unknown"))
    compared = samples.same + samples.other
    if samples.other:
        told = Said("samples.other", {"step": samples.first, "other": samples.other, "steps": compared})
        return Column("samples", DIFFERS, told, compared, samples.other, samples.first)
    if compared:
        return Column("samples", EQUAL, Said("samples.equal", {"steps": compared}), compared)
    told = {"seen": samples.seen, "repeated": samples.repeated}
    if samples.repeated > _FILLED_UP:
        return Column("samples", DIFFERS, Said("samples.repeated", told), numbers=told)
    if samples.seen:
        return Column("samples", GOES_ON, Said("samples.goes_on", told), numbers=told)
    return Column("samples", UNKNOWN, Said("samples.unknown"))


def _repeated(mine: dict, old: dict, start: int, epochs: dict[int, float]) -> tuple[int, int]:
    """Samples after the resume in the epoch that it broke off in, and how many of them that epoch had had already."""
    known = sorted(step for step in epochs if step < start)[-2:]
    if len(known) < 2 or known[1] != start - 1:
        return 0, 0
    now, per_step = _number(epochs[start - 1]), (epochs[known[1]] - epochs[known[0]]) / (known[1] - known[0])
    begun = [step for step in old if step < start and _number(epochs[start - 1] - (start - 1 - step) * per_step) == now]
    earlier = begun if per_step > 0 else []
    later = [step for step in mine if step in epochs and _number(epochs[step]) <= now]
    used = Counter(one for step in earlier for _, batch in old[step].values() for one in _rows(batch))
    if not used or max(used.values()) > 1:  # a sampler that draws with replacement, or rows that are there twice
        return 0, 0
    again = [one for step in later for batch in mine[step].values() for one in _rows(batch)]
    return len(again), sum(one in used for one in again)


def _number(epoch: float) -> int:
    """Which epoch a step belongs to, by the epoch at its end."""
    return math.ceil(epoch - 1e-6)


def _identity(micro_batches: list) -> tuple:
    """What the model was given, in its order: hashes of ids and labels, of the other answer too; the row with it."""
    return tuple(
        (one.get("hash"), one.get("labels_hash"), (one.get("rejected") or {}).get("hash"), one.get("row"))
        for batch in micro_batches
        for one in batch
    )


def _rows(batch: Iterable[tuple]) -> list[tuple]:
    return [(one[0], one[3]) for one in batch if one[3] is not None]
