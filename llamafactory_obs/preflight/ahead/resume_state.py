"""Does a checkpoint hold what a resume needs? transformers takes one without optimizer or RNG state in silence.

What is in it is judged by `checkpoint/`; here it is said what that means for this run.
"""

from pathlib import Path

from ...checkpoint.files import Incomplete, read_step
from ...checkpoint.part import BROKEN, GOOD, MISSING, STALE, Expected, Part
from ...checkpoint.resume_state import layout_of, resume_parts
from ...texts import text
from ..result import FAIL, PASS, WARN, Check
from .effective import Effective

#: what `resume_state` is about; the rest of the state is `resume_rng`
_STATE = ("optimizer", "scheduler", "scaler")
#: LlamaFactory's optimizers that are rebuilt, or kept for each parameter, during a run
_OWN_STEPS = ("use_badam", "use_galore", "use_apollo")


def check_state(run: Effective, checkpoint: Path) -> list[Check]:
    """`resume_state`: optimizer, scheduler, scaler, and a `trainer_state.json` that ends the resume; `resume_rng`."""
    parts = read_parts(run, checkpoint)
    state = [part for part in parts if part.name in _STATE]
    state = _state(checkpoint, [*state, *(part for part in parts if part.name == "trainer_state" and part.why)])
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
        parts = text("ahead.state.and_no").join(text(f"ahead.part.{part}") for part in missing)
        told = text("ahead.state.missing", checkpoint=checkpoint.name, parts=parts)
        if set(missing) & {"optimizer", "scheduler"}:  # the Trainer loads both or neither
            told += text("ahead.state.forgets")
        return Check(name, FAIL, missing, [], told, text("ahead.state.from_whole"))
    for part in parts:
        if part.state == BROKEN:
            told = text("ahead.state.broken", checkpoint=checkpoint.name, file=part.file, why=part.why)
            return Check(name, FAIL, part.file, [], told, text("ahead.state.from_another"))
        if part.state == STALE:
            told = text("ahead.state.mixture", checkpoint=checkpoint.name, why=part.why)
            return Check(name, FAIL, part.file, [], told, text("ahead.state.from_another"))
    there = text("ahead.state.comma").join(text(f"ahead.part.{part.name}") for part in parts)
    return Check(name, PASS, [], [], text("ahead.state.there", checkpoint=checkpoint.name, parts=there))


def _rng(checkpoint: Path, processes: int, parts: list[Part]) -> Check:
    name, wanted = "resume_rng", [part.file for part in parts]
    found = sorted(path.name for path in checkpoint.glob("rng_state*.pth"))
    missing = [part for part in parts if part.state == MISSING]
    fix, about = text("ahead.state.rng_processes"), {"checkpoint": checkpoint.name}
    if missing and not found:
        told = text("ahead.state.rng_missing", **about)
        return Check(name, WARN, found, wanted, told, text("ahead.state.rng_accept"))
    if missing:
        about |= {"file": found[0], "processes": processes}
        one = found == ["rng_state.pth"]
        told = text("ahead.state.rng_one" if one else "ahead.state.rng_many", count=len(found), **about)
        return Check(name, WARN, found, wanted, told, fix)
    for part in parts:
        if part.state != GOOD:
            told = text("ahead.state.rng_broken", file=part.file, why=part.why, **about)
            return Check(name, FAIL, part.file, None, told, text("ahead.state.rng_remove", file=part.file))
    more = len(found) > len(wanted)
    status = WARN if more and processes > 1 else PASS
    told = text("ahead.state.rng_there", **about)
    if more:
        told = text("ahead.state.rng_more", count=len(found), processes=processes, **about)
    return Check(name, status, found, wanted, told, fix if status == WARN else "")
