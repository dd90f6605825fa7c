"""What becomes of a checkpoint that the Trainer is given: it takes it whole, goes on without a part, or breaks off.

Rules of transformers 5.6.0: `Trainer._load_from_checkpoint`, `_load_optimizer_and_scheduler`, `_load_scaler`,
`_load_rng_state`, `TrainerState.load_from_json`. Optimizer and scheduler are read together or not at all.
"""

from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.examine import Examined
from ..checkpoint.files import STATE, Incomplete, read_json
from ..checkpoint.part import BROKEN, MISSING, STALE, Part
from ..checkpoint.resume_state import layout_of
from ..checkpoint.torch_file import load_rng, load_safely
from ..checkpoint.trainer_state import wrong_kind
from ..probe.complete import prove

#: in the order in which they are said
ORDER = ("weights", "optimizer", "scheduler", "scaler", "data", "rng")


@dataclass
class Fate:
    """What a resume makes of one checkpoint.

    Attributes:
        ends: why the training ends at its start, by the first file; None where it does not.
        restored: names of the parts that are read.
        lost: the parts that begin anew without a word.
        wrong: the parts that are read as they are, though they are damaged or of another step.
    """

    ends: Part | None = None
    restored: list[str] = field(default_factory=list)
    lost: list[Part] = field(default_factory=list)
    wrong: list[Part] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """All of it is read, and right."""
        return self.ends is None and not self.lost and not self.wrong


def fate_of(one: Examined) -> Fate:
    """Tell what becomes of an examined checkpoint (by content, not by headers alone)."""
    fate = Fate()
    if not one.parts:  # not a folder, or it cannot be read
        why = one.verdict.reasons[0] if one.verdict.reasons else ""
        return Fate(ends=Part("weights", BROKEN, one.name, why))
    together = {part.name for part in one.parts if part.state != MISSING}
    fate.ends = _end(one, read_state={"optimizer", "scheduler"} <= together)
    for name in ORDER:
        of = [part for part in one.parts if part.name == name]
        absent = [part for part in of if part.state == MISSING]
        bad = [part for part in of if part.state in (BROKEN, STALE)]
        if absent or (name in ("optimizer", "scheduler") and of and not _both(one)):
            fate.lost += absent or [Part(name, MISSING, of[0].file, of[0].why)]
        elif bad:
            fate.wrong += bad
        elif of:
            fate.restored.append(name)
    if instead := [part for part in one.parts if part.name == "adapter"]:  # the adapter begins anew
        fate.wrong += instead
        fate.restored = [name for name in fate.restored if name != "weights"]
    state = next((part for part in one.parts if part.name == "trainer_state"), None)
    if state is not None and state.state == BROKEN:
        fate.wrong.append(state)
    return fate


def _both(one: Examined) -> bool:
    """Are optimizer and scheduler there, or in DeepSpeed's own shards?"""
    if one.kind == "deepspeed":
        return True
    there = {part.name for part in one.parts if part.state != MISSING}
    return {"optimizer", "scheduler"} <= there


def _end(one: Examined, read_state: bool) -> Part | None:
    """The first thing at which the Trainer breaks off."""
    folder = one.path
    for part in one.parts:
        if part.name == "weights" and part.state in (MISSING, BROKEN) and not _loads(folder):
            return part
        if part.name == "trainer_state" and part.state in (MISSING, BROKEN) and not _is_taken(folder / STATE):
            return part
        if part.name in ("optimizer", "scheduler", "scaler", "rng") and part.state == BROKEN:
            if part.name in ("optimizer", "scheduler") and not read_state:
                continue
            if not _can_be_read(folder / part.file, part.name):
                return part
    return None


def _loads(folder: Path) -> bool:
    """Are the weights whole as files? What the numbers are does not stop a resume."""
    return prove(folder, None, at_rest=True).complete or layout_of(folder) != "plain"


def _is_taken(file: Path) -> bool:
    try:
        return not wrong_kind(read_json(file))
    except Incomplete:
        return False


def _can_be_read(file: Path, name: str) -> bool:
    if file.is_dir():
        return False  # shards with one missing or too short
    try:
        load_rng(file) if name == "rng" else load_safely(file)
        return True
    except Incomplete:
        return False
