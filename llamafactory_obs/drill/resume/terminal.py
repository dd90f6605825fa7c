"""The outcome of a drill for people, in 80 columns and without colour."""

import textwrap
from typing import TextIO

from .outcome import UNKNOWN, Outcome
from .words import BARS, PLAIN_BARS, differing, marks, number, sparklines, word

_COLUMNS, _CURVE = 80, 60


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it: the first line is the verdict."""
    bars = BARS if (out.encoding or "").lower().startswith("utf") else PLAIN_BARS
    lines = _wrapped("", f"{outcome.verdict.upper()}: {outcome.why}")
    lines += _wrapped("  run      ", _run(outcome))
    if outcome.take_away:
        what = ", ".join(outcome.taken) or "other keys for the order of the data"
        lines += _wrapped("  taken    ", f"{outcome.take_away} ({what}), on purpose")
    lines += _table(outcome) + _curve(outcome, bars)
    if outcome.lost:
        lines.append("lost:")
        for one in outcome.lost:
            lines += _wrapped(f"  {one.part:<15}", f"before: {one.before or 'nothing was said'}")
            lines += _wrapped(" " * 17, f"after:  {one.after or 'nothing shows'}")
    if outcome.tensors:
        one = outcome.tensors[0]
        noise = f" (noise {number(one['floor_largest'])})" if one["floor_largest"] is not None else ""
        lines += _wrapped("weights differ most in ", f"{one['name']}: {number(one['largest'])}{noise}")
    if outcome.last_words:
        lines += [f"the last words of the {outcome.failed} training:", *(f"  {line}" for line in outcome.last_words)]
    for note in (*outcome.notes, *outcome.limits):
        lines += _wrapped("note: ", note)
    if outcome.log:
        lines.append(f"log: {outcome.log}")
    if outcome.report:
        lines.append(f"report: {outcome.report}")
    print("\n".join(lines), file=out)


def _run(outcome: Outcome) -> str:
    processes = f"{outcome.ranks} processes" if outcome.ranks > 1 else "1 process"
    killed = f"killed after step {outcome.killed_at}, resumed at {outcome.steps}"
    return f"{outcome.config}: {outcome.steps + outcome.extra} steps, {processes}; {killed}"


def _table(outcome: Outcome) -> list[str]:
    if not outcome.measures:
        return []
    head = f"steps {outcome.steps + 1} to {outcome.steps + outcome.extra}"
    lines = ["", f"{head:<16} {'':<8} {'after the resume':<27} two unbroken (noise)"]
    for one in outcome.measures:
        if one.status == UNKNOWN:
            lines += _wrapped(f"{one.name:<16} {word(one):<8} ", one.why)
            continue
        found = differing(one.unequal, one.compared, one.largest)
        noise = differing(one.floor_unequal, one.compared, one.floor_largest)
        lines.append(f"{one.name:<16} {word(one):<8} {found:<27} {noise}".rstrip())
    for name, measures in (("before the break", outcome.before_break), ("steps made twice", outcome.twice)):
        lines += _wrapped(f"{name:<26}", _summary(measures))
    return [*lines, ""]


def _summary(measures: list) -> str:
    steps = max((one.compared for one in measures), default=0)
    unequal = [f"{one.name} differs from step {one.first} on" for one in measures if one.unequal]
    equal = f"all {steps} steps are equal" if steps else "not recorded"
    return "; ".join(unequal) or equal


def _curve(outcome: Outcome, bars: str) -> list[str]:
    found = outcome.curves.get("train/loss")
    if not found:
        return []
    one, other = sparklines([found["unbroken"], found["resumed"]], _CURVE, bars)
    return [
        f"  loss     {one} unbroken",
        f"           {other} resumed",
        f"           {marks(found['unbroken'], found['resumed'], _CURVE)} = equal, x not",
    ]


def _wrapped(label: str, text: str) -> list[str]:
    """Text behind its label; a line that goes on is indented as far."""
    indent = " " * (len(label) or 2)
    wrapper = textwrap.TextWrapper(_COLUMNS, label, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
