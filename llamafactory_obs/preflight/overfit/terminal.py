"""The verdict of the single-batch test for people."""

import itertools
import math
import textwrap
from typing import TextIO

from .outcome import FAILED, KNOWN, LEARNED, Outcome
from .rule import Rule

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
_CURVE, _COLUMNS = 60, 80


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it, without colour: the first line is the verdict."""
    bars = _BARS if (out.encoding or "").lower().startswith("utf") else _PLAIN_BARS
    lines = _wrapped("", _verdict(outcome))
    if len(outcome.losses) > 1:
        lines.append(f"  loss   {sparkline(outcome.losses, _CURVE, bars)}")
    if outcome.batch:
        lines += _wrapped("  batch  ", _batch(outcome.batch))
        lines.append(f"  again  {_again(outcome.batch)}")  # one line, whatever its length: to be copied
    if outcome.learning_rate is not None:
        lines.append(f"  rate   {outcome.learning_rate:g}, constant; no dropout, no weight decay, no accumulation")
    if outcome.causes:
        lines.append("likely causes:")
    for number, cause in enumerate(outcome.causes, 1):
        lines += _wrapped(f"  {number}. ", cause.detail)
        lines += _wrapped("     -> ", cause.fix) if cause.fix else []
    if outcome.last_words:
        lines += ["the log's last words:", *(f"  {line}" for line in outcome.last_words)]
    lines += itertools.chain.from_iterable(_wrapped("note: ", note) for note in outcome.notes)
    print("\n".join(lines), file=out)


def sparkline(values: list[float], width: int, bars: str = _BARS) -> str:
    """Losses as one line of at most `width` characters, on a logarithmic scale; `x` where one is not finite.

    A loss that does not move stays at the top.
    """
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    logs = [math.log(max(mean, 1e-9)) if math.isfinite(mean) else None for mean in means]
    known = [one for one in logs if one is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(bars) - 1) / (high - low) if high - low > 1e-3 else 0.0
    return "".join("x" if one is None else bars[len(bars) - 1 - round((high - one) * scale)] for one in logs)


def _verdict(outcome: Outcome) -> str:
    if not outcome.losses:
        return (
            "FAILED: the training did not start" if outcome.status == FAILED else "NOT LEARNED: nothing to learn from"
        )
    first, last, step = outcome.losses[0], outcome.losses[-1], len(outcome.losses)
    if outcome.status == KNOWN:
        return (
            f"NOT JUDGED: the model knows this batch already (first loss {first:.3g}, under {Rule.known_below:g}):"
            " take other rows with --row"
        )
    text = f"loss {first:.4g} -> {last:.4g}"
    if outcome.status == LEARNED:
        asked = "under a tenth" if outcome.target > Rule.by_heart else "known by heart"
        return f"LEARNED: {text} ({asked}: {outcome.target:.3g}) in {step} steps, {outcome.seconds:.0f} s in all"
    far = f"{last / first:.0%} of the first" if first and math.isfinite(last / first) else "not finite"
    if outcome.status == FAILED:
        return f"FAILED: the training broke off after {step} steps; {text}"
    return (
        f"NOT LEARNED: {text} ({far}, wanted under {outcome.target / first:.0%}) after {step} of {outcome.limit} steps"
    )


def _batch(batch: list[dict]) -> str:
    parts = []
    for name in dict.fromkeys(row["dataset"] for row in batch):
        rows = list(dict.fromkeys(row["row"] for row in batch if row["dataset"] == name))
        parts.append(f"{name} row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}")
    lengths = [row["length"] for row in batch]
    shortest = f"{min(lengths)} to " if min(lengths) < max(lengths) else ""
    return f"{'; '.join(parts)} ({shortest}{max(lengths)} tokens)"


def _again(batch: list[dict]) -> str:
    """The words that take the same rows."""
    several = len({row["dataset"] for row in batch}) > 1
    rows = dict.fromkeys(f"{row['dataset']}:{row['row']}" if several else str(row["row"]) for row in batch)
    return " ".join(f"--row {row}" for row in rows)


def _wrapped(label: str, text: str) -> list[str]:
    """Text behind its label; a line that goes on is indented as far."""
    indent = " " * (len(label) or 2)
    wrapper = textwrap.TextWrapper(_COLUMNS, label, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
