"""How often the whole run steps, logs, evaluates and saves, by the config."""

import math
from dataclasses import dataclass

from ..ahead.effective import Effective
from ..ahead.saves import number_of_saves


@dataclass(frozen=True)
class Counts:
    """One run's numbers.

    Attributes:
        steps: optimizer steps.
        passes: starts of a pass over the data.
        log_every: steps between two logs; None for no log.
        evaluations, saves: in the whole run, those at its end included.
        processes: training processes.
    """

    steps: int
    passes: int
    log_every: int | None
    evaluations: int
    saves: int
    processes: int


def counts_of(run: Effective) -> Counts:
    """The numbers of a run whose rows are known, or whose `max_steps` is given."""
    total, per_epoch = run.total_steps, run.steps_per_epoch
    passes = math.ceil(total / per_epoch) if per_epoch else 1
    logging = {"steps": run.interval("logging_steps"), "epoch": per_epoch or total}
    return Counts(
        steps=total,
        passes=passes,
        log_every=logging.get(run.word("logging_strategy")),
        evaluations=_evaluations(run, total, passes),
        saves=number_of_saves(run) or 0,
        processes=run.processes,
    )


def _evaluations(run: Effective, total: int, passes: int) -> int:
    """transformers also evaluates at the last step (`DefaultFlowCallback`), and LlamaFactory once more after training
    wherever `do_eval` is on (a strategy turns it on)."""
    if not run.get("eval_dataset") and run.get("val_size") < 1e-6:
        return 0
    strategy, delay = run.word("eval_strategy"), run.get("eval_delay") or 0
    times = int(bool(run.get("do_eval")) or strategy != "no") + int(bool(run.get("eval_on_start")))
    if strategy == "steps":
        every = run.interval("eval_steps") or run.interval("logging_steps")
        times += sum(step >= delay for step in {*range(every, total + 1, every), total})
    elif strategy == "epoch":
        times += max(0, passes - max(math.ceil(delay) - 1, 0))
    return times
