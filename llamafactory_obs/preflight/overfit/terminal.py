"""The verdict of the single-batch test for people."""

import itertools
import math
from typing import TextIO

from .outcome import FAILED, KNOWN, LEARNED, Outcome
from .rule import Rule

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
_WIDTH = 60


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it, without colour: the first line is the verdict."""
    bars = _BARS if (out.encoding or "").lower().startswith("utf") else _PLAIN_BARS
    lines = [_verdict(outcome)]
    if outcome.losses:
        lines.append(f"  loss   {sparkline(outcome.losses, _WIDTH, bars)}")
    if outcome.batch:
        lines.append(f"  batch  {_batch(outcome)}")
    if outcome.learning_rate is not None:
        lines.append(f"  rate   {outcome.learning_rate:g}, constant; no dropout, no weight decay, no accumulation")
    if outcome.causes:
        lines.append("likely causes:")
    for number, cause in enumerate(outcome.causes, 1):
        lines.append(f"  {number}. {cause.detail}")
        if cause.fix:
            lines.append(f"     -> {cause.fix}")
    if outcome.last_words:
        lines += ["the log's last words:", *(f"  {line}" for line in outcome.last_words)]
    lines += [f"note: {note}" for note in outcome.notes]
    print("\n".join(lines), file=out)


def sparkline(values: list[float], width: int, bars: str = _BARS) -> str:
    """Losses as one line of at most `width` characters, on a logarithmic scale; `x` where one is not finite."""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    logs = [math.log(max(mean, 1e-9)) if math.isfinite(mean) else None for mean in means]
    known = [one for one in logs if one is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(bars) - 1) / (high - low) if high - low > 1e-3 else 0.0
    return "".join("x" if one is None else bars[round((one - low) * scale)] for one in logs)


def _verdict(outcome: Outcome) -> str:
    if not outcome.losses:
        return (
            "FAILED: the training did not start" if outcome.status == FAILED else "NOT LEARNED: nothing to learn from"
        )
    first, last, step = outcome.losses[0], outcome.losses[-1], len(outcome.losses)
    if outcome.status == KNOWN:
        return (
            f"NOT SHOWN: the model knows this batch already (first loss {first:.3g}, under {Rule.known_below:g}):"
            " choose other rows with --row"
        )
    text = f"loss {first:.4g} -> {last:.4g}"
    if outcome.status == LEARNED:
        return f"LEARNED: {text} (under {outcome.target:.3g}) in {step} steps, {outcome.seconds:.0f} s"
    far = f"{last / first:.0%} of the first" if first and math.isfinite(last / first) else "not finite"
    if outcome.status == FAILED:
        return f"FAILED: the training broke off after {step} steps; {text}"
    return f"NOT LEARNED: {text} ({far}, wanted {outcome.target / first:.0%}) after {step} of {outcome.limit} steps"


def _batch(outcome: Outcome) -> str:
    names = dict.fromkeys(row["dataset"] for row in outcome.batch)
    parts = []
    for name in names:
        rows = list(dict.fromkeys(row["row"] for row in outcome.batch if row["dataset"] == name))
        parts.append(f"{name} rows {', '.join(map(str, rows))}")
    words = {f"{row['dataset']}:{row['row']}" if len(names) > 1 else str(row["row"]): None for row in outcome.batch}
    longest = max(row["length"] for row in outcome.batch)
    again = " ".join(f"--row {word}" for word in words)
    return f"{'; '.join(parts)} (longest {longest} tokens); again: {again}"
