"""Which checkpoint to resume from: the one that was asked for, else the newest good one of this run."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..checkpoint.examine import Depth, Examined
from ..checkpoint.files import STATE
from ..checkpoint.folder import examine_folder
from ..checkpoint.part import BROKEN, GOOD, MISSING, Expected, Part
from ..checkpoint.resume_state import resume_parts
from ..checkpoint.run_of import OLDER
from ..checkpoint.verdict import DAMAGED, WARM, Verdict
from ..control.folder import control_folder
from ..control.presence import look
from ..errors import ConfigError
from ..probe.complete import prove
from ..probe.scan import step_of


@dataclass
class Choice:
    """What was found in the folder of the checkpoints.

    Attributes:
        folder: where they lie.
        best: to be resumed from; None where there is none.
        good: it brings back all that changes the course of training.
        passed: the newer ones, newest first; each was examined and is not good, or is of another run.
        newer: newer good ones that were passed over because an older one was asked for.
        running: a training is at work in the folder.
    """

    folder: Path
    best: Examined | None = None
    good: bool = False
    passed: list[Examined] = field(default_factory=list)
    newer: list[Examined] = field(default_factory=list)
    running: bool = False


def choose(folder: Path, asked: Path | None, say: Callable[[str], None] = lambda line: None) -> Choice:
    """Examine what lies in a folder, newest first, until a good one is found. Nothing is written.

    Args:
        folder: the output folder, or the one around the checkpoint that was asked for.
        asked: a checkpoint that is to be used whatever the others are.
        say: is told what is going on.
    """
    found = Choice(folder, running=look(control_folder(folder)).state == "running")
    quick = _examine(folder, Depth(values=False), say)
    if asked is not None:
        found.best = _deep(asked, found.running, say)
        found.good = found.best.good
        step = found.best.step or 0
        others = [one for one in quick if (one.step or 0) > step and one.path.name != asked.name]
        found.passed = [one for one in reversed(others) if not _may(one)]
        found.newer = [one for one in reversed(others) if _may(one)]
        return found
    for one in reversed(quick):
        if one.moving or _may(one):
            one = _deep(one.path, found.running, say)
            if one.good:
                found.best, found.good = one, True
                break
        found.passed.append(one)
    for one in [] if found.good else list(found.passed):  # none is good: the newest that is a warm start
        if one.run != OLDER and one.verdict.resumes and (warm := _deep(one.path, found.running, say)).verdict.resumes:
            found.best = warm
            break
    if found.best is not None and not found.good:
        warm = found.best
        found.passed = [one for one in found.passed if (one.step or 0) > (warm.step or 0)]
    return found


def deep(folder: Path, say: Callable[[str], None] = lambda line: None) -> Examined:
    """Examine one checkpoint by its content."""
    return _deep(folder, False, say)


def named(folder: Path, word: str) -> Path:
    """The checkpoint that `--from` names: a path, `checkpoint-N`, or N.

    Raises:
        ConfigError: there is none.
    """
    for path in (folder / word, folder / f"checkpoint-{word}", Path(word).expanduser()):
        if word and path.is_dir() and _is_one(path, folder):
            return path if path.name else path.resolve()
    there = sorted((one.name for one in folder.glob("checkpoint-*") if step_of(one.name) is not None), key=step_of)
    known = f"there are {', '.join(there[-4:])}" if there else f"there is none in {folder}"
    raise ConfigError(f"--from {word or repr(word)}: no such checkpoint; {known}")


def _is_one(path: Path, folder: Path) -> bool:
    """A folder that may hold a checkpoint, and is not the output folder itself."""
    named = step_of(path.resolve().name) is not None
    return path.resolve() != folder.resolve() and (named or (path / STATE).exists() or any(path.glob("*.safetensors")))


def _examined(path: Path, say: Callable[[str], None]) -> Examined:
    """One folder as a checkpoint, also where it holds no more than a model and its state."""
    try:
        found = examine_folder(path, depth=Depth(values=True), say=say).checkpoints
    except ConfigError:
        found = []
    if len(found) == 1 and found[0].path == path:
        return found[0]
    proof = prove(path, None, at_rest=True)
    weights = Part("weights", GOOD if proof.weights and proof.complete else BROKEN, path.name, proof.why)
    parts = [weights, *resume_parts(path, Expected(proof.step or 0))]
    lost = [part for part in parts if part.state == MISSING and part.needed]
    whole = weights.state == GOOD and not any(part.state == BROKEN for part in parts)
    verdict = Verdict(WARM if whole else DAMAGED, whole, whole, [part.name for part in lost], bool(lost))
    verdict.reasons = [part.why for part in (*lost, *parts) if part.why]
    return Examined(path, proof.step, verdict, parts, proof.kind or "none")


def _may(one: Examined) -> bool:
    return one.run != OLDER and one.verdict.resumes and not one.verdict.grave


def _examine(folder: Path, depth: Depth, say: Callable[[str], None]) -> list[Examined]:
    try:
        return examine_folder(folder, depth=depth, say=say).checkpoints
    except ConfigError:  # no such folder, or nothing in it
        return []


def _deep(path: Path, running: bool, say: Callable[[str], None]) -> Examined:
    one = _examined(path, say)
    if one.moving and not running and look(control_folder(path.parent)).state in ("killed", "ended"):
        return replace(one, moving="")  # its training is gone: nobody writes here
    return one
