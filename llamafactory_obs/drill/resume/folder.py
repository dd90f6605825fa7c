"""What the drill's folder holds: checkpoints while there is something to compare, and at the end only the report."""

import contextlib
import math
import shutil
from collections.abc import Iterator

from ...errors import ConfigError
from ...preflight.ahead.disk import save_size
from .. import folder as folders
from .plan import AGAIN, BROKEN, UNBROKEN, Plan
from .words import say

#: what a save takes beside its tensors, and the records, as a factor
_SPARE = 1.1


def check_room(plan: Plan) -> str:
    """Compare the free disk with what the drill needs at its fullest: when the last training ends.

    Returns:
        A note where it is not known; else an empty text.

    Raises:
        ConfigError: they do not fit.
    """
    try:
        size = save_size(plan.config)
    except ConfigError as error:
        return say("note.room", error=error)
    saves = math.ceil(plan.total / plan.steps)
    checkpoints, models = (3 * saves, 3) if plan.keep else (2 + saves, 1)
    needed = int((checkpoints * (size.weights + size.state) + models * size.weights) * _SPARE)
    folders.require_room(plan.folder, needed, "its checkpoints")
    return ""


@contextlib.contextmanager
def drill_folder(plan: Plan) -> Iterator[None]:
    """Make the folder; at the end the trainings' own folders go away, after an interruption all that was made.

    Raises:
        ConfigError: it cannot be made.
    """
    with folders.drill_folder(plan.folder, plan.keep):
        yield
        plan.told.unlink(missing_ok=True)
        if not plan.keep:
            for name in (UNBROKEN, BROKEN, AGAIN):
                shutil.rmtree(plan.output_dir(name), ignore_errors=True)


def prune(plan: Plan, name: str) -> None:
    """Of a training that has ended only the last checkpoint is looked at: the rest makes room for the next one."""
    if plan.keep:
        return
    for one in plan.output_dir(name).iterdir():
        if one.name.startswith("checkpoint-") and one != plan.checkpoint(name, plan.total):
            shutil.rmtree(one, ignore_errors=True)
        elif one.suffix in (".safetensors", ".bin", ".pt"):
            one.unlink(missing_ok=True)
