"""The score of a drill for people, in 80 columns and without colour."""

from typing import TextIO

from ...texts.sentences import sentence
from ...texts.wrap import cells, padded, wrapped
from .incidents import INCIDENTS
from .outcome import NOT_MADE, Outcome
from .report import happened
from .words import reason, result, row, say

_COLUMNS = 80
_LABEL = 10


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it: the score first, then a line for each training, then why something was not right."""
    run = say("screen.run", config=outcome.config, steps=outcome.steps, at=outcome.at, seconds=outcome.seconds)
    lines = [*wrapped(result(outcome), _COLUMNS), *wrapped(run, _COLUMNS, "  ", "  "), ""]
    made = [outcome.healthy, *outcome.incidents]
    columns = ("incident", "verdict", "cause", "begins", "alert", "score")
    lines += _table([[say(f"column.{name}") for name in columns], *map(row, made)])
    wrong = [one for one in made if one.why]
    lines += [""] * bool(wrong)
    for one in wrong:
        lines += _labelled(one.name, reason(one))
        if one.status == NOT_MADE:
            lines += [f"  {line}" for line in one.last_words[-3:]]
    if outcome.name != "all" and outcome.judged:
        lines += ["", *_one(outcome)]
    lines.append("")
    for name, values in outcome.notes:
        lines += _labelled(say("screen.note"), sentence(say(name, **values)))
    if outcome.report:
        lines += _labelled(say("screen.report"), str(outcome.report))
    print("\n".join(lines), file=out)


def _one(outcome: Outcome) -> list[str]:
    """Of one incident what the report says of it, short."""
    [made] = outcome.judged
    lines = _labelled(say("screen.what"), happened(made))
    if made.spoken.causes:
        for sentence in made.spoken.causes[0].supports[:2]:
            lines += _labelled(say("screen.why"), sentence)
    for part in ("now", "lasting"):
        lines += _labelled(say(f"screen.{part}"), say(f"{part}.{made.name}"))
    for check in INCIDENTS[made.name].checks:
        line = check.line if check.where == "gate" else f"{check.where}: {check.line}"
        lines += _labelled(say("screen.check"), line)
    return lines


def _labelled(label: str, text: str) -> list[str]:
    first = padded(f"{label}", max(_LABEL, cells(label) + 1))
    return wrapped(text, _COLUMNS, first, " " * cells(first))


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(cells(one[column]) for one in rows) for column in range(len(rows[0]))]
    return ["  ".join(padded(cell, width) for cell, width in zip(one, widths, strict=True)).rstrip() for one in rows]
