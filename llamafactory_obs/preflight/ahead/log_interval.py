"""Will a spike be seen in the log?"""

from ... import texts
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
        what = (
            f"logging_strategy: {strategy}"
            if strategy != "steps"
            else texts.text("ahead.log.share", share=run.get(name))
        )
    else:
        steps, what = every, f"logging_steps: {every}"
    if recorded:
        text = texts.text("ahead.log.for_the_eye", what=what)
        return [Check(name, PASS, steps, None, text)]
    checks = []
    seen = None if steps is None else dilution(SPIKE, steps)
    if seen is not None and seen >= VISIBLE:
        text = texts.text("ahead.log.logged", what=what, spike=SPIKE, seen=seen)
        checks.append(Check(name, PASS, round(seen, 2), VISIBLE, text))
    else:
        size = texts.text("ahead.log.averaged") if seen is None else texts.text("ahead.log.as_times", seen=seen)
        text = texts.text("ahead.log.loss_spike", what=what, spike=SPIKE, size=size)
        value = None if seen is None else round(seen, 2)
        cure = texts.text("ahead.log.cure")
        checks.append(Check(name, WARN, value, VISIBLE, text, cure))
    if run.get("logging_nan_inf_filter") and steps != 1:
        text = texts.text("ahead.log.nan_filter")
        cure = texts.text("ahead.log.nan_cure")
        checks.append(Check("logging_nan_inf_filter", WARN, True, False, text, cure))
    return checks
