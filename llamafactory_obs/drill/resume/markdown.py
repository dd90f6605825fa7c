"""The report of a drill: a Markdown file for people and the same as JSON."""

from .. import markdown
from ..markdown import REPORT, changes, table
from .outcome import Outcome
from .words import differing, marks, number, same, sparklines, word

_CURVE = 80


def write_reports(outcome: Outcome) -> None:
    """Write both into the drill's folder; a disk that is full by now is a note, the verdict stands."""
    outcome.report = outcome.folder / REPORT
    if failed := markdown.write_reports(outcome.folder, _report(outcome), outcome.as_dict()):
        outcome.notes.append(failed)
        outcome.report = None


def _report(outcome: Outcome) -> list[str]:
    total = outcome.steps + outcome.extra
    taken = f", then without {outcome.take_away}" if outcome.take_away else ""
    lines = [
        f"# Resume drill: {outcome.verdict}",
        "",
        f"{outcome.why[:1].upper()}{outcome.why[1:]}.",
        "",
        f"- config: `{outcome.config}`",
        f"- unbroken: {total} steps; broken: SIGKILL after step {outcome.killed_at}, resumed from"
        f" `checkpoint-{outcome.steps}`{taken}; again: {total} steps once more, for the noise floor",
        f"- processes: {outcome.ranks}; seconds: "
        + ", ".join(f"{name} {seconds:g}" for name, seconds in outcome.seconds.items()),
    ]
    if outcome.lost:
        rows = [[one.part, one.before or "nothing was said", one.after or "nothing shows"] for one in outcome.lost]
        lines += ["", "## What was lost", "", *table(["part", "before the resume", "after it"], rows)]
    if outcome.last_words:
        lines += ["", f"## Last words of the {outcome.failed} training", "", "```", *outcome.last_words, "```"]
    lines += _measures(outcome) + _curves(outcome) + _tensors(outcome)
    if outcome.settings:
        rows = [[row["setting"], row["drill"], row["run"] or "no record"] for row in outcome.settings]
        lines += ["", "## Limits of determinism", "", *table(["setting", "this drill", "the recorded run"], rows)]
    lines += ["", *(f"- {text}" for text in (*outcome.limits, *outcome.notes))]
    lines += ["", "## What differs from the config", "", "All else is as in the config.", ""]
    return lines + changes(outcome.changed)


def _measures(outcome: Outcome) -> list[str]:
    if not outcome.measures:
        return []
    rows = []
    for one in outcome.measures:
        found = one.why or differing(one.unequal, one.compared, one.largest)
        noise = differing(one.floor_unequal, one.compared, one.floor_largest) if one.compared else "-"
        rows.append([one.name, word(one), found, noise, "-" if one.first is None else str(one.first)])
    lines = ["", f"## Steps {outcome.steps + 1} to {outcome.steps + outcome.extra}", ""]
    head = ["", "verdict", "unbroken against resumed", "unbroken against again (noise)", "parts at step"]
    lines += table(head, rows)
    for name, measures in (("Before the break", outcome.before_break), ("Steps made twice", outcome.twice)):
        rows = [[one.name, differing(one.unequal, one.compared, one.largest)] for one in measures]
        if rows:
            lines += ["", f"## {name}", "", *table(["", _WHAT[name]], rows)]
    return lines


#: what is set against what
_WHAT = {
    "Before the break": "unbroken against broken: two starts, no resume in between",
    "Steps made twice": "broken, before the kill, against resumed",
}


def _curves(outcome: Outcome) -> list[str]:
    lines = []
    for column, found in outcome.curves.items():
        names = ("unbroken", "resumed", "again")
        plots = sparklines([found[name] for name in names], _CURVE)
        lines += ["", f"{column}, steps {found['steps'][0]} to {found['steps'][-1]}", "", "```"]
        lines += [f"{name:<9} {plot}" for name, plot in zip(names, plots, strict=True)]
        lines += [f"{'':<9} {marks(found['unbroken'], found['resumed'], _CURVE)}", "```"]
    found = outcome.curves.get("train/loss")
    if found:
        steps = zip(found["steps"], found["unbroken"], found["resumed"], found["again"], strict=True)
        rows = [[str(step), *map(_exact, values), "=" if same(*values[:2]) else "x"] for step, *values in steps]
        lines += ["", "## Loss", "", *table(["step", "unbroken", "resumed", "again", ""], rows)]
    return ["", "## Curves", "", "`=` equal bit for bit, `x` not.", *lines] if lines else []


def _tensors(outcome: Outcome) -> list[str]:
    if not outcome.tensors:
        return []
    rows = [
        [
            f"`{one['name']}`",
            f"{one['unequal']} of {one['elements']}",
            number(one["largest"]),
            number(one["floor_largest"]),
        ]
        for one in outcome.tensors
    ]
    head = ["tensor", "elements that differ", "largest difference", "noise"]
    return ["", "## Weights that differ most", "", *table(head, rows)]


def _exact(value: float | None) -> str:
    return "-" if value is None else f"{value:.9g}"
