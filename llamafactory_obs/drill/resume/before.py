"""What a resume will lose, told before it starts: by the checkpoint's content and by the two configs."""

from pathlib import Path

from ...checkpoint.part import DOUBTFUL, GOOD, Expected
from ...checkpoint.resume_state import layout_of, resume_parts
from ...preflight.ahead.resume_changes import ROWS
from .plan import BROKEN, RESUMED, Plan, derive
from .words import called, say

#: what a resume reads beside the weights; the other parts only say something about it
_READ = ("optimizer", "scheduler", "scaler", "rng", "trainer_state")
#: optimizers that are rebuilt during the run: their count of steps is not the run's
_OWN_STEPS = ("use_badam", "galore_layerwise", "apollo_layerwise")


def losses_before(plan: Plan, checkpoint: Path) -> dict[str, str]:
    """Part -> why it will be lost; empty where the checkpoint has all and the data are the same.

    Raises:
        OSError: the folder cannot be listed.
    """
    given = plan.config.given
    expected = Expected(
        step=plan.steps,
        fp16=bool(given.get("fp16")),
        ranks=plan.ranks,
        own_steps=any(given.get(key) for key in _OWN_STEPS),
    )
    found: dict[str, str] = {}
    for part in resume_parts(checkpoint, expected):
        if part.name in _READ and part.state not in (GOOD, DOUBTFUL):
            found.setdefault(part.name, part.why)
    _together(checkpoint, found)
    if why := _other_rows(plan):
        found["data_order"] = why
    return found


def _together(checkpoint: Path, found: dict[str, str]) -> None:
    """transformers 5.6 loads `optimizer.pt` and `scheduler.pt` only where both are there
    (`Trainer._load_optimizer_and_scheduler`); DeepSpeed loads its own."""
    if layout_of(checkpoint) == "deepspeed":
        return
    held = {
        "optimizer": any((checkpoint / name).exists() for name in ("optimizer.pt", "optimizer.bin", "optimizer_0")),
        "scheduler": (checkpoint / "scheduler.pt").exists(),
    }
    for part, other in (("optimizer", "scheduler"), ("scheduler", "optimizer")):
        if held[part] and not held[other]:
            found[part] = say("before.together", part=called("part", part))


def _other_rows(plan: Plan) -> str:
    """Keys that decide which rows come next and that differ between the first part and the resume."""
    first, then = derive(plan, BROKEN).given, derive(plan, RESUMED).given
    changed = [key for key in (*ROWS, "dataset", "ignore_data_skip") if first.get(key) != then.get(key)]
    told = ", ".join(f"{key} {_was(first, key)} -> {then.get(key)}" for key in changed)
    if not changed and then.get("ignore_data_skip"):
        told = say("before.data_skip")
    return told


def _was(given: dict, key: str) -> object:
    if key == "data_seed" and given.get(key) is None:
        return f"{given.get('seed', 42)} (seed)"
    return given.get(key)
