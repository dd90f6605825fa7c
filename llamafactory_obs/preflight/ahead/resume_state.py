"""Does a checkpoint hold what a resume needs? transformers takes one without optimizer or RNG state in silence.

What is read, and when nothing is said about a missing file: transformers 5.6.0, `Trainer._load_optimizer_and_scheduler`
and `_load_rng_state`.
"""

import re
from collections.abc import Callable
from pathlib import Path

from ...checkpoint.files import Incomplete
from ...checkpoint.torch_file import load_rng, load_safely
from ..result import FAIL, PASS, WARN, Check
from .effective import Effective

#: folders of DeepSpeed's and FSDP's own states, which hold optimizer (DeepSpeed: and scheduler) of all ranks
_DEEPSPEED, _FSDP = re.compile(r"global_step\d+"), re.compile(r"optimizer(_\d+)?")


def check_state(run: Effective, checkpoint: Path) -> list[Check]:
    """`resume_state`: optimizer and scheduler; `resume_rng`."""
    return [_optimizer(checkpoint), _rng(checkpoint, run.processes)]


def is_sharded(checkpoint: Path) -> bool:
    """Does it hold DeepSpeed's or FSDP's own shards? Their content is not judged here."""
    return _has_folder(checkpoint, _DEEPSPEED) or _has_folder(checkpoint, _FSDP)


def _has_folder(checkpoint: Path, name: re.Pattern) -> bool:
    return any(entry.is_dir() and name.fullmatch(entry.name) for entry in checkpoint.iterdir())


def _optimizer(checkpoint: Path) -> Check:
    name, entries = "resume_state", {entry.name: entry for entry in checkpoint.iterdir()}
    deepspeed, sharded = _has_folder(checkpoint, _DEEPSPEED), _has_folder(checkpoint, _FSDP)
    optimizer = sharded or deepspeed or any(word in entries for word in ("optimizer.pt", "optimizer.bin"))
    scheduler = "scheduler.pt" in entries or deepspeed
    missing = [word for word, there in (("optimizer", optimizer), ("scheduler", scheduler)) if not there]
    if missing:
        text = f"{checkpoint.name} has no {' and no '.join(missing)} state: this is a warm start, not a resume"
        text += "; the learning rate begins its schedule anew and Adam forgets its moments, without a word"
        fix = "resume from a checkpoint with optimizer.pt and scheduler.pt (save_only_model: false)"
        return Check(name, FAIL, missing, [], text, fix)
    for word in ("optimizer.pt", "optimizer.bin", "scheduler.pt"):
        if word in entries and (why := _unreadable(entries[word], load_safely)):
            text = f"{checkpoint.name}/{word} cannot be read ({why}): the training would end at its start"
            return Check(name, FAIL, word, [], text, "resume from another checkpoint")
    return Check(name, PASS, [], [], f"{checkpoint.name} has its optimizer and scheduler state")


def _rng(checkpoint: Path, processes: int) -> Check:
    name = "resume_rng"
    wanted = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
    found = sorted(path.name for path in checkpoint.glob("rng_state*.pth"))
    missing = [word for word in wanted if word not in found]
    fix = "continue with as many processes as before, or accept it"
    if missing and not found:
        text = f"{checkpoint.name} has no RNG state: not bit-exact (dropout and shuffling draw other numbers)"
        return Check(name, WARN, found, wanted, text, "accept it, or resume from another checkpoint")
    if missing:
        of = "one process" if found == ["rng_state.pth"] else f"{len(found)} processes"
        text = f"{checkpoint.name} has the RNG state of {of} ({found[0]} ...), this run has {processes}: not bit-exact"
        return Check(name, WARN, found, wanted, text, fix)
    for word in wanted:
        if why := _unreadable(checkpoint / word, load_rng):
            text = f"{checkpoint.name}/{word} cannot be read ({why}): the training would end at its start"
            return Check(name, FAIL, word, None, text, f"remove {word} (not bit-exact then), or another checkpoint")
    more = f"; {len(found)} files for {processes} process(es)" if len(found) > len(wanted) else ""
    status = WARN if more and processes > 1 else PASS
    text = f"{checkpoint.name} has its RNG state{more}"
    return Check(name, status, found, wanted, text, fix if status == WARN else "")


def _unreadable(file: Path, load: Callable[[Path], object]) -> str:
    """Why the Trainer could not load a state file, "" where it can."""
    try:
        load(file)
    except Incomplete as reason:
        return str(reason)
    return ""
