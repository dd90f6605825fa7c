"""One sentence: what it is, and the one thing to do."""

import math
from itertools import compress
from statistics import median

from ..detect import Action, Finding
from ..logs.curves import Curves


def headline(action: Action, first: Finding | None, curves: Curves) -> str:
    """The first finding's own words, or what there is to say of a run without one.

    Args:
        first: the finding that made the verdict, None where there is none.
    """
    if first is not None:
        return first.text
    if curves.kind == "rl":
        return "Reinforcement learning: its loss says nothing of how it goes. Its rewards and KL show nothing wrong."
    column = curves.columns.get("train/loss")
    losses = list(filter(math.isfinite, compress(column.values, column.present))) if column is not None else []
    if len(losses) < 12:
        return f"Nothing wrong can be seen, but {len(losses)} rows with a loss say little. Let it go on."
    few = max(3, len(losses) // 50)
    start, end = median(losses[:few]), median(losses[-few:])
    if end < start:
        return f"The loss fell from {start:.4g} to {end:.4g} and nothing wrong can be seen. Go on."
    return (
        f"The loss has not fallen ({start:.4g} at the start, {end:.4g} now). That is no proof that nothing is learnt: "
        "the log is too short or too noisy for it, or the run had learnt before. Go on, and look again after more rows."
    )
