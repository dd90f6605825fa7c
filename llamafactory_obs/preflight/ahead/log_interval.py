"""Will a spike be seen in the log?"""

from ..result import PASS, WARN, Check
from .effective import Effective

#: A one-step spike of this many times the usual loss should be visible.
SPIKE = 10.0
#: An average in which it shows as less than this hides it (`exit_ratio` of `detect.spike`: below it a spike is over).
VISIBLE = 2.0


def dilution(ratio: float, steps: int) -> float:
    """How large a one-step spike of `ratio` times the usual loss looks in an average over `steps` steps."""
    return 1 + (ratio - 1) / steps


def check_logging(run: Effective) -> list[Check]:
    """`logging_steps` and `logging_nan_inf_filter`; of no account where our record has every step."""
    strategy, every, recorded = run.word("logging_strategy"), run.interval("logging_steps"), bool(run.config.callbacks)
    name = "logging_steps"
    if strategy != "steps" or every is None:
        steps = run.total_steps if strategy == "no" else None
        what = f"logging_strategy: {strategy}" if strategy != "steps" else f"logging_steps: {run.get(name)} of the run"
    else:
        steps, what = every, f"logging_steps: {every}"
    if recorded:
        text = f"{what}, for the eye only: the record has every step"
        return [Check(name, PASS, steps, None, text)]
    checks = []
    seen = None if steps is None else dilution(SPIKE, steps)
    if seen is not None and seen >= VISIBLE:
        text = f"{what}: a spike of {SPIKE:g} times in one step is logged as {seen:.1f} times"
        checks.append(Check(name, PASS, round(seen, 2), VISIBLE, text))
    else:
        size = "is averaged over all its steps" if seen is None else f"is logged as {seen:.1f} times"
        text = f"{what}: a loss spike of {SPIKE:g} times in one step {size}; grad_norm is the last step's only"
        value = None if seen is None else round(seen, 2)
        cure = "callbacks: [grad_norm_spike] (every step, whatever stands here), or logging_steps: 5"
        checks.append(Check(name, WARN, value, VISIBLE, text, cure))
    if run.get("logging_nan_inf_filter") and steps != 1:
        text = "logging_nan_inf_filter is on: a NaN loss is logged as the average of the others, the curve looks clean"
        cure = "callbacks: [grad_norm_spike], or logging_nan_inf_filter: false"
        checks.append(Check("logging_nan_inf_filter", WARN, True, False, text, cure))
    return checks
