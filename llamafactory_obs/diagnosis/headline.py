"""One sentence: what it is, and the one thing to do."""

import math
from itertools import compress
from statistics import median

from ..detect import Action, Finding
from ..logs.curves import Curves
from ..texts import text
from ..texts.findings import title, told


def headline(action: Action, first: Finding | None, curves: Curves) -> str:
    """The first finding's own words, or what there is to say of a run without one.

    Args:
        first: the finding that made the verdict, None where there is none.
    """
    if first is not None:
        return told(first.name, first.step, first.text, first.evidence, first.until)
    if curves.kind == "rl":
        return text("diagnose.headline.rl")
    column = curves.columns.get("train/loss")
    losses = list(filter(math.isfinite, compress(column.values, column.present))) if column is not None else []
    if len(losses) < 12:
        return text("diagnose.headline.few", rows=len(losses))
    few = max(3, len(losses) // 50)
    start, end = median(losses[:few]), median(losses[-few:])
    if end < start:
        return text("diagnose.headline.fell", start=start, end=end)
    return text("diagnose.headline.not_fallen", start=start, end=end)


def verdict_in_words(name: str) -> str:
    """A verdict is the name of a finding, or one of a few that are none."""
    return text(f"diagnose.verdict.{name}") if name in ("healthy", "rl", "not_a_training_log") else title(name)
