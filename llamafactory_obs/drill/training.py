"""Runs one training of a drill in a process of its own."""

import time
from collections.abc import Callable
from pathlib import Path

from ..preflight.rehearsal import child
from ..preflight.rehearsal.child import Ended
from ..preflight.rehearsal.derive import Derived, write_config
from ..texts import text

Say = Callable[[str], None]
#: seconds between two lines of progress
_PROGRESS_S = 10.0


def train(
    derived: Derived,
    config: Path,
    log: Path,
    env: dict[str, str],
    on_step: Callable[[dict], None],
    kill_when: Callable[[], bool] = lambda: False,
) -> Ended:
    """Write the config and train it.

    Args:
        derived: the training.
        config: its file in the drill's folder; `log` takes what it prints.
        env: of `child.environment`, and whatever the drill adds.
        on_step, kill_when: see `child.train`.

    Raises:
        KeyboardInterrupt, SystemExit: the training's processes are ended before.
    """
    write_config(derived, config, "made by `llamafactory-obs drill` from the config of a real run")
    return child.train(config, Path(derived.given["output_dir"]), log, env, on_step, kill_when)


def progress(name: str, total: int, say: Say, after: int = 0, always: tuple[int, ...] = ()) -> Callable[[dict], None]:
    """Says a line of progress every ten seconds, at the last step and at those of `always`; none up to `after`."""
    said = -_PROGRESS_S

    def on_step(row: dict) -> None:
        nonlocal said
        loss, step = row.get("train/loss"), row.get("step", 0)
        due = time.monotonic() - said >= _PROGRESS_S or step in (*always, total)
        if loss is not None and due and step > after:
            said = time.monotonic()
            say(text("drill.progress", training=name, step=step, total=total, loss=loss))

    return on_step
