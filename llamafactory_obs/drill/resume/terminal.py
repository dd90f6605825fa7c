"""The outcome of a drill for people, in 80 columns and without colour."""

from typing import TextIO

from ...texts.sentences import sentence
from ...texts.wrap import cells, padded, wrapped
from .outcome import UNKNOWN, Outcome
from .words import BARS, PLAIN_BARS, called, differing, marks, number, say, sparklines, word

_COLUMNS, _CURVE = 80, 60
#: columns of a label, in cells
_LABEL, _PART, _NAME, _STATUS, _FOUND = 11, 17, 16, 8, 27


def show(outcome: Outcome, out: TextIO) -> None:
    """Print it: the first line is the verdict."""
    bars = BARS if (out.encoding or "").lower().startswith("utf") else PLAIN_BARS
    verdict = say(f"verdict.{outcome.verdict}").upper()
    lines = _wrapped("", say("screen.verdict", verdict=verdict, why=outcome.why))
    lines += _wrapped(padded(f"  {say('screen.run')}", _LABEL), _run(outcome))
    if outcome.take_away:
        what = ", ".join(outcome.taken) or say("screen.other_order")
        part = called("part", outcome.take_away)
        lines += _wrapped(padded(f"  {say('screen.taken')}", _LABEL), say("screen.taken_away", part=part, what=what))
    lines += _table(outcome) + _curve(outcome, bars)
    if outcome.lost:
        lines.append(say("screen.lost"))
        for one in outcome.lost:
            before, after = one.before or say("screen.nothing_said"), one.after or say("screen.nothing_shows")
            part = padded(f"  {called('part', one.part)}", _PART)
            lines += _wrapped(part, say("screen.before", why=before))
            lines += _wrapped(" " * cells(part), say("screen.after", why=after))
    if outcome.tensors:
        lines += _wrapped(say("screen.weights"), _tensor(outcome.tensors[0]))
    if outcome.last_words:
        lines.append(say("screen.last_words", training=say(f"training.{outcome.failed}")))
        lines += [f"  {line}" for line in outcome.last_words]
    for note in (*outcome.notes, *outcome.limits):
        lines += _wrapped(say("screen.note"), sentence(note))
    if outcome.log:
        lines.append(say("screen.log", path=outcome.log))
    if outcome.report:
        lines.append(say("screen.report", path=outcome.report))
    print("\n".join(lines), file=out)


def _run(outcome: Outcome) -> str:
    about = {"config": outcome.config, "total": outcome.steps + outcome.extra}
    about |= {"killed": outcome.killed_at, "steps": outcome.steps}
    if outcome.ranks > 1:
        return say("screen.processes", ranks=outcome.ranks, **about)
    return say("screen.one_process", **about)


def _tensor(one: dict) -> str:
    about = {"name": one["name"], "largest": number(one["largest"])}
    if one["floor_largest"] is None:
        return say("screen.tensor", **about)
    return say("screen.tensor_noise", noise=number(one["floor_largest"]), **about)


def _table(outcome: Outcome) -> list[str]:
    if not outcome.measures:
        return []
    head = say("screen.steps", first=outcome.steps + 1, last=outcome.steps + outcome.extra)
    lines = ["", _row(head, "", say("screen.after_resume"), say("screen.two_unbroken"))]
    for one in outcome.measures:
        name = called("measure", one.name)
        if one.status == UNKNOWN:
            lines += _wrapped(f"{padded(name, _NAME)} {padded(word(one), _STATUS)} ", one.why)
            continue
        found = differing(one.unequal, one.compared, one.largest)
        noise = differing(one.floor_unequal, one.compared, one.floor_largest)
        lines.append(_row(name, word(one), found, noise).rstrip())
    for name, measures in (("before_break", outcome.before_break), ("twice", outcome.twice)):
        lines += _wrapped(padded(say(f"screen.{name}"), _NAME + _STATUS + 2), _summary(measures))
    return [*lines, ""]


def _row(name: str, status: str, found: str, noise: str) -> str:
    return f"{padded(name, _NAME)} {padded(status, _STATUS)} {padded(found, _FOUND)} {noise}"


def _summary(measures: list) -> str:
    steps = max((one.compared for one in measures), default=0)
    unequal = [
        say("screen.differs_from", name=called("measure", one.name), step=one.first) for one in measures if one.unequal
    ]
    equal = say("screen.steps_equal", steps=steps) if steps else say("why.not_recorded")
    return say("semicolon").join(unequal) or equal


def _curve(outcome: Outcome, bars: str) -> list[str]:
    found = outcome.curves.get("train/loss")
    if not found:
        return []
    one, other = sparklines([found["unbroken"], found["resumed"]], _CURVE, bars)
    same = marks(found["unbroken"], found["resumed"], _CURVE)
    return [
        padded(f"  {say('screen.curve')}", _LABEL) + say("screen.unbroken", curve=one),
        " " * _LABEL + say("screen.resumed", curve=other),
        " " * _LABEL + say("screen.marks", marks=same),
    ]


def _wrapped(label: str, text: str) -> list[str]:
    """Text behind its label; a line that goes on is indented as far."""
    return wrapped(text, _COLUMNS, label, " " * (cells(label) or 2))
