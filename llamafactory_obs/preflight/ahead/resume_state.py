"""Does a checkpoint hold what a resume needs? transformers takes one without optimizer or RNG state in silence.

What is in it is judged by `checkpoint/`; here it is said what that means for this run.
"""

from pathlib import Path

from ...checkpoint.files import Incomplete, read_step
from ...checkpoint.part import BROKEN, GOOD, MISSING, STALE, Expected, Part
from ...checkpoint.resume_state import layout_of, resume_parts
from ..result import FAIL, PASS, WARN, Check
from .effective import Effective

#: what `resume_state` is about; the rest of the state is `resume_rng`
_STATE = ("optimizer", "scheduler", "scaler")
#: LlamaFactory's optimizers that are rebuilt, or kept for each parameter, during a run
_OWN_STEPS = ("use_badam", "use_galore", "use_apollo")


def check_state(run: Effective, checkpoint: Path) -> list[Check]:
    """`resume_state`: optimizer, scheduler, scaler; `resume_rng`."""
    parts = read_parts(run, checkpoint)
    state = _state(checkpoint, [part for part in parts if part.name in _STATE])
    return [state, _rng(checkpoint, run.processes, [part for part in parts if part.name == "rng"])]


def read_parts(run: Effective, checkpoint: Path) -> list[Part]:
    """The parts that a resume of this run reads, each with its state."""
    try:
        step = read_step(checkpoint)
    except Incomplete:
        step = 0
    expected = Expected(
        step=step,
        fp16=bool(run.get("fp16")),
        ranks=run.processes,
        own_steps=any(run.get(key) for key in _OWN_STEPS),
    )
    return resume_parts(checkpoint, expected)


def is_sharded(checkpoint: Path) -> bool:
    """Does it hold DeepSpeed's or FSDP's own shards?"""
    return layout_of(checkpoint) != "plain"


def _state(checkpoint: Path, parts: list[Part]) -> Check:
    name = "resume_state"
    missing = [part.name for part in parts if part.state == MISSING]
    if missing:
        text = f"{checkpoint.name} has no {' and no '.join(missing)} state: this is a warm start, not a resume"
        if set(missing) & {"optimizer", "scheduler"}:  # the Trainer loads both or neither
            text += "; the learning rate begins its schedule anew and Adam forgets its moments, without a word"
        fix = "resume from a checkpoint with optimizer.pt and scheduler.pt (save_only_model: false)"
        return Check(name, FAIL, missing, [], text, fix)
    for part in parts:
        if part.state == BROKEN:
            text = f"{checkpoint.name}/{part.file} cannot be read, or makes no sense ({part.why})"
            return Check(name, FAIL, part.file, [], text, "resume from another checkpoint")
        if part.state == STALE:
            text = f"{checkpoint.name} is a mixture of two saves: {part.why}"
            return Check(name, FAIL, part.file, [], text, "resume from another checkpoint")
    return Check(name, PASS, [], [], f"{checkpoint.name} has its {', '.join(part.name for part in parts)} state")


def _rng(checkpoint: Path, processes: int, parts: list[Part]) -> Check:
    name, wanted = "resume_rng", [part.file for part in parts]
    found = sorted(path.name for path in checkpoint.glob("rng_state*.pth"))
    missing = [part for part in parts if part.state == MISSING]
    fix = "continue with as many processes as before, or accept it"
    if missing and not found:
        text = f"{checkpoint.name} has no RNG state: not bit-exact (dropout and shuffling draw other numbers)"
        return Check(name, WARN, found, wanted, text, "accept it, or resume from another checkpoint")
    if missing:
        of = "one process" if found == ["rng_state.pth"] else f"{len(found)} processes"
        text = f"{checkpoint.name} has the RNG state of {of} ({found[0]} ...), this run has {processes}: not bit-exact"
        return Check(name, WARN, found, wanted, text, fix)
    for part in parts:
        if part.state != GOOD:
            text = f"{checkpoint.name}/{part.file} cannot be read ({part.why}): the training would end at its start"
            return Check(name, FAIL, part.file, None, text, f"remove {part.file} (not bit-exact then), or another one")
    more = f"; {len(found)} files for {processes} process(es)" if len(found) > len(wanted) else ""
    status = WARN if more and processes > 1 else PASS
    text = f"{checkpoint.name} has its RNG state{more}"
    return Check(name, status, found, wanted, text, fix if status == WARN else "")
