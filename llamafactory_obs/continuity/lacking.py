"""What a resume does not restore: by what lies in the checkpoint, and by the marks in the numbers."""

from collections.abc import Iterable
from pathlib import Path

from ..checkpoint.files import Incomplete
from ..checkpoint.part import MISSING, Expected
from ..checkpoint.resume_state import resume_parts
from ..logs.names import LOSS, NORM
from ..logs.resumed import Resumed
from ..texts import speaking
from .said import DIFFERS, EQUAL, Column, Lack, Said
from .twice import twice

#: without one of these the course of training is another one; without the random numbers it is only not bit-exact
GRAVE = frozenset(("optimizer", "scheduler", "scaler", "data_order"))
#: parts of a checkpoint that a resume reads, in the order in which they are told
_PARTS = ("optimizer", "scheduler", "scaler", "rng")
#: a difference of the second step that the order of sums on a GPU does not make (relative): of the loss, of the norm
_ANOTHER_UPDATE = (1e-4, 1e-3)
#: one of the first step: the same weights give the same loss but for this
_AT_ONCE = 1e-3


@speaking("en")  # it goes into the record
def by_checkpoint(folder: Path, expected: Expected, by: str = "checkpoint") -> list[Lack]:
    """What a checkpoint does not hold; nothing of it is loaded.

    A file that is there but cannot be read ends the resume by itself. The Trainer restores optimizer and scheduler only
    together (transformers 5.6, `_load_optimizer_and_scheduler`).
    """
    try:
        parts = [part for part in resume_parts(folder, expected, quick=True) if part.name in _PARTS]
    except (OSError, Incomplete):
        return []
    lost: dict[str, list[str]] = {}
    for part in parts:
        if part.state == MISSING:
            lost.setdefault(part.name, []).append(part.why if part.name == "rng" else part.why.partition(": ")[0])
    files = {part.name: part.file for part in parts}
    pair = ("optimizer", "scheduler")
    for one, other in (pair, pair[::-1]):
        if one in lost and other in files and other not in lost:
            lost[other] = [f"it is loaded only together with {files[one]}"]
    ranks = len(lost.get("rng", ()))
    if ranks > 1:
        lost["rng"] = [f"{lost['rng'][0]}; the same on {ranks} ranks in all"]
    return [Lack(name, by, lost[name][0]) for name in _PARTS if name in lost]


def by_numbers(resumed: Resumed, columns: dict[str, Column]) -> list[Lack]:
    """The marks of a lost part: each leaves one of its own.

    A scheduler: another rate. The place in the data: other samples, another epoch. An optimizer: the first step is the
    same, bit for bit, the one after its update is not. Random numbers: the same samples, yet another loss at once.
    """
    found = []
    if columns["learning_rate"].status == DIFFERS:
        found.append(Lack("scheduler", "numbers", columns["learning_rate"].told))
    for name in ("samples", "epoch"):
        if columns[name].status == DIFFERS:
            found.append(Lack("data_order", "numbers", columns[name].told))
            return found
    if _is_another_update(resumed, columns):
        found.append(Lack("optimizer", "numbers", Said("mark.optimizer", {"step": resumed.step})))
    at_once = another_at_once(resumed)
    if at_once is not None and columns["samples"].status == EQUAL:
        found.append(Lack("rng", "numbers", at_once))
    elif at_once is not None:
        part = "data_order" if columns["loss"].status == DIFFERS else "rng"
        found.append(Lack(part, "numbers", Said("mark.rng_or_samples", at_once.values)))
    return found


def another_at_once(resumed: Resumed, share: float = _AT_ONCE) -> Said | None:
    """The first step's loss, which the checkpoint's weights make, where it is another one by more than this share."""
    both = twice(resumed, LOSS)
    if resumed.row_steps > 1 or resumed.step not in both.beyond(share):
        return None
    before, after = both.at(resumed.step)
    return Said("mark.rng", {"step": resumed.step, "before": before, "after": after})


def _is_another_update(resumed: Resumed, columns: dict[str, Column]) -> bool:
    """Only in our own record, which keeps each bit: rounded numbers are equal too easily."""
    if resumed.segment is None or columns["learning_rate"].status not in (EQUAL,):
        return False
    loss, norm = twice(resumed, LOSS), twice(resumed, NORM)
    if norm.steps[:2] != loss.steps[:2] or len(loss.steps) < 2 or loss.steps[1] != resumed.step + 1:
        return False
    if loss.apart[0] or norm.apart[0]:
        return False
    parts = [resumed.step + 1 in one.beyond(share) for one, share in zip((loss, norm), _ANOTHER_UPDATE, strict=True)]
    return any(parts)


def joined(*groups: Iterable[Lack]) -> list[Lack]:
    """Each part once, by the first that names it."""
    found: dict[str, Lack] = {}
    for group in groups:
        for one in group:
            found.setdefault(one.part, one)
    return list(found.values())
