"""The verdict of the single-batch test for people."""

import itertools
import math
from typing import TextIO

from ... import texts
from ...texts.sentences import sentence
from ...texts.wrap import COLUMNS, labelled, wrapped
from .outcome import FAILED, KNOWN, LEARNED, Outcome
from .rule import Rule

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
_CURVE = 60


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it, without colour: the first line is the verdict."""
    bars = _BARS if (out.encoding or "").lower().startswith("utf") else _PLAIN_BARS
    lines = wrapped(_verdict(outcome), COLUMNS, then="  ")
    if len(outcome.losses) > 1:
        lines.append(texts.text("overfit.loss", curve=sparkline(outcome.losses, _CURVE, bars)))
    if outcome.batch:
        lines += labelled(texts.text("overfit.label.batch"), _batch(outcome.batch))
        # one line, whatever its length: to be copied
        lines.append(texts.text("overfit.again", rows=_again(outcome.batch)))
    if outcome.learning_rate is not None:
        lines.append(texts.text("overfit.rate", rate=outcome.learning_rate))
    if outcome.causes:
        lines.append(texts.text("overfit.causes"))
    for number, cause in enumerate(outcome.causes, 1):
        lines += labelled(f"  {number}. ", cause.detail)
        lines += labelled("     -> ", cause.fix) if cause.fix else []
    if outcome.last_words:
        lines += [texts.text("overfit.last_words"), *(f"  {line}" for line in outcome.last_words)]
    notes = map(sentence, outcome.notes)
    lines += itertools.chain.from_iterable(labelled(texts.text("overfit.label.note"), note) for note in notes)
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
        return texts.text("overfit.not_started") if outcome.status == FAILED else texts.text("overfit.nothing")
    first, last, step = outcome.losses[0], outcome.losses[-1], len(outcome.losses)
    if outcome.status == KNOWN:
        return texts.text("overfit.known", loss=first, below=Rule.known_below)
    text = texts.text("overfit.from_to", first=first, last=last)
    if outcome.status == LEARNED:
        asked = texts.text("overfit.tenth") if outcome.target > Rule.by_heart else texts.text("overfit.by_heart")
        return texts.text(
            "overfit.learned", text=text, asked=asked, target=outcome.target, step=step, seconds=outcome.seconds
        )
    far = (
        texts.text("overfit.of_first", share=last / first)
        if first and math.isfinite(last / first)
        else texts.text("overfit.not_finite")
    )
    if outcome.status == FAILED:
        return texts.text("overfit.broke_off", step=step, text=text)
    return texts.text(
        "overfit.not_learned", text=text, far=far, wanted=outcome.target / first, step=step, limit=outcome.limit
    )


def _batch(batch: list[dict]) -> str:
    parts = []
    for name in dict.fromkeys(row["dataset"] for row in batch):
        rows = list(dict.fromkeys(row["row"] for row in batch if row["dataset"] == name))
        key = "overfit.rows" if len(rows) > 1 else "overfit.row"
        parts.append(texts.text(key, name=name, rows=", ".join(map(str, rows))))
    lengths = [row["length"] for row in batch]
    shortest = texts.text("overfit.up_to", low=min(lengths)) if min(lengths) < max(lengths) else ""
    return texts.text("overfit.batch", rows="; ".join(parts), shortest=shortest, longest=max(lengths))


def _again(batch: list[dict]) -> str:
    """The words that take the same rows."""
    several = len({row["dataset"] for row in batch}) > 1
    rows = dict.fromkeys(f"{row['dataset']}:{row['row']}" if several else str(row["row"]) for row in batch)
    return " ".join(f"--row {row}" for row in rows)
