"""The four trainings of the drill, each in a process of its own."""

from pathlib import Path

from ...preflight.rehearsal import child
from ...preflight.rehearsal.child import Ended
from .. import training
from .plan import BROKEN, RESUMED, Plan, derive
from .words import say as words


def train(plan: Plan, name: str, scratch: Path, say: training.Say) -> Ended:
    """Train; the broken one is killed when it stands still at `plan.held`.

    Args:
        name: see `plan`.
        scratch: a folder that goes away, for caches and temporary files.
        say: takes a line of progress.

    Raises:
        KeyboardInterrupt, SystemExit: the training's processes are ended before.
    """
    derived = derive(plan, name)
    env = child.environment(scratch, plan.config.given, derived.given)
    after = plan.steps if name == RESUMED else 0  # the rows before are of the training that was killed
    on_step = training.progress(words(f"training.{name}"), plan.total, say, after, always=(plan.steps,))
    kill = plan.told.exists if name == BROKEN else lambda: False
    return training.train(derived, plan.folder / f"{name}.yaml", plan.log(name), env, on_step, kill)
