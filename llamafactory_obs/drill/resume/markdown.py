"""The report of a drill: a Markdown file for people, in their language, and the same as JSON, in English."""

from collections.abc import Callable

from ...texts.sentences import sentence
from ...texts.wrap import padded
from .. import markdown
from ..markdown import REPORT, changes, table
from .limits import value_in_words
from .outcome import Outcome
from .words import called, differing, marks, number, same, say, sparklines, word

_CURVE = 80


def write_reports(outcome: Outcome, english: Callable[[str], str]) -> None:
    """Write both into the drill's folder; a disk that is full by now is a note, the verdict stands.

    Args:
        english: what says a text in English, see `texts.remembering`.
    """
    outcome.report = outcome.folder / REPORT
    if failed := markdown.write_reports(outcome.folder, _report(outcome), outcome.as_dict(english)):
        outcome.notes.append(failed)
        outcome.report = None


def _report(outcome: Outcome) -> list[str]:
    made = {"total": outcome.steps + outcome.extra, "killed": outcome.killed_at, "steps": outcome.steps}
    if outcome.take_away:
        how = say("report.made_without", part=called("part", outcome.take_away), **made)
    else:
        how = say("report.made", **made)
    seconds = say("joint").join(f"{say(f'training.{name}')} {one:g}" for name, one in outcome.seconds.items())
    lines = [
        say("report.title", verdict=say(f"verdict.{outcome.verdict}")),
        "",
        say("report.sentence", why=f"{outcome.why[:1].upper()}{outcome.why[1:]}"),
        "",
        say("report.config", config=outcome.config),
        how,
        say("report.processes", ranks=outcome.ranks, seconds=seconds),
    ]
    if outcome.lost:
        said, shown = say("screen.nothing_said"), say("screen.nothing_shows")
        rows = [[called("part", one.part), one.before or said, one.after or shown] for one in outcome.lost]
        lines += ["", say("report.lost"), "", *table(_heads("part", "before", "after"), rows)]
    if outcome.last_words:
        training = say(f"training.{outcome.failed}")
        lines += ["", say("report.last_words", training=training), "", "```", *outcome.last_words, "```"]
    lines += _measures(outcome) + _curves(outcome) + _tensors(outcome)
    if outcome.settings:
        rows = [_setting(row) for row in outcome.settings]
        lines += ["", say("report.determinism"), "", *table(_heads("setting", "drill", "run"), rows)]
    lines += ["", *(f"- {sentence(one)}" for one in (*outcome.limits, *outcome.notes))]
    lines += ["", say("report.changed"), "", say("report.else"), ""]
    return lines + changes(outcome.changed)


def _heads(*names: str) -> list[str]:
    return [say(f"column.{name}") for name in names]


def _setting(row: dict) -> list[str]:
    there = value_in_words(row["run"]) if row["run"] else say("report.no_record")
    return [say(f"setting.{row['setting']}"), value_in_words(row["drill"]), there]


def _measures(outcome: Outcome) -> list[str]:
    if not outcome.measures:
        return []
    rows = []
    for one in outcome.measures:
        found = one.why or differing(one.unequal, one.compared, one.largest)
        noise = differing(one.floor_unequal, one.compared, one.floor_largest) if one.compared else "-"
        rows.append(
            [called("measure", one.name), word(one), found, noise, "-" if one.first is None else str(one.first)]
        )
    lines = ["", say("report.steps", first=outcome.steps + 1, last=outcome.steps + outcome.extra), ""]
    lines += table(["", *_heads("verdict", "resumed", "noise", "parts")], rows)
    for name, measures in (("before_break", outcome.before_break), ("twice", outcome.twice)):
        rows = [[called("measure", one.name), differing(one.unequal, one.compared, one.largest)] for one in measures]
        if rows:
            lines += ["", say(f"report.{name}"), "", *table(["", *_heads(name)], rows)]
    return lines


def _curves(outcome: Outcome) -> list[str]:
    lines, names = [], ("unbroken", "resumed", "again")
    for column, found in outcome.curves.items():
        plots = sparklines([found[name] for name in names], _CURVE)
        lines += ["", say("report.curve", column=column, first=found["steps"][0], last=found["steps"][-1]), "", "```"]
        lines += [f"{padded(say(f'training.{name}'), 9)} {plot}" for name, plot in zip(names, plots, strict=True)]
        lines += [f"{'':<9} {marks(found['unbroken'], found['resumed'], _CURVE)}", "```"]
    found = outcome.curves.get("train/loss")
    if found:
        steps = zip(found["steps"], found["unbroken"], found["resumed"], found["again"], strict=True)
        rows = [[str(step), *map(_exact, values), "=" if same(*values[:2]) else "x"] for step, *values in steps]
        lines += [
            "",
            say("report.loss"),
            "",
            *table([*_heads("step"), *(say(f"training.{one}") for one in names), ""], rows),
        ]
    return ["", say("report.curves"), "", say("report.marks"), *lines] if lines else []


def _tensors(outcome: Outcome) -> list[str]:
    if not outcome.tensors:
        return []
    rows = [
        [
            f"`{one['name']}`",
            say("report.elements", unequal=one["unequal"], elements=one["elements"]),
            number(one["largest"]),
            number(one["floor_largest"]),
        ]
        for one in outcome.tensors
    ]
    head = _heads("tensor", "elements", "largest", "tensor_noise")
    return ["", say("report.weights"), "", *table(head, rows)]


def _exact(value: float | None) -> str:
    return "-" if value is None else f"{value:.9g}"
