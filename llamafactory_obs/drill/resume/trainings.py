"""Runs one training of a drill in a process of its own."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...preflight.rehearsal import child
from ...preflight.rehearsal.child import Ended
from ...preflight.rehearsal.derive import write_config
from .plan import BROKEN, RESUMED, Plan, derive

#: seconds between two lines of progress
_PROGRESS_S = 10.0


def train(plan: Plan, name: str, scratch: Path, say: Callable[[str], None]) -> Ended:
    """Train; the broken one is killed when it stands still at `plan.held`.

    Args:
        name: see `plan`.
        scratch: a folder that goes away, for caches and temporary files.
        say: takes a line of progress.

    Raises:
        KeyboardInterrupt, SystemExit: the training's processes are ended before.
    """
    derived = derive(plan, name)
    config = plan.folder / f"{name}.yaml"
    write_config(derived, config, "made by `llamafactory-obs drill resume` from the config of a real run")
    start = config
    if " " in str(start):  # LlamaFactory splits its torchrun command at blanks
        start = Path(shutil.copy(start, scratch / config.name))
    env = child.environment(scratch, plan.config.given, derived.given)
    kill = plan.told.exists if name == BROKEN else lambda: False
    return child.train(start, plan.output_dir(name), plan.log(name), env, _progress(plan, name, say), kill)


def _progress(plan: Plan, name: str, say: Callable[[str], None]) -> Callable[[dict], None]:
    said = -_PROGRESS_S

    def on_step(row: dict) -> None:
        nonlocal said
        loss, step = row.get("train/loss"), row.get("step", 0)
        if name == RESUMED and step <= plan.steps:  # of the training that was killed
            return
        due = time.monotonic() - said >= _PROGRESS_S or step in (plan.steps, plan.total)
        if loss is not None and due:
            said = time.monotonic()
            say(f"{name}: step {step}/{plan.total}  loss {loss:.4g}")

    return on_step
