"""`compare --html`: one self-contained page with the curves of all runs over each other."""

import os

import numpy as np

from ..charts import Mark, Series, Span, escape, line_chart, number, page, prose, write_page
from ..diagnosis.page.shared import mean_of
from .axis import Places, column, places
from .facts import FACTS
from .model import Comparison, Pair, Run
from .relation import resumes
from .shown import Shown, ShownPair, shown
from .words import bracket, curve_line, t, value

#: column, unit, logarithmic, from 0, style: "mean" draws a long curve as its mean over the pale values
_SHOWN = (
    ("train/loss", "nats", False, False, "mean"),
    ("eval/loss", "nats", False, False, "dots"),
    ("train/grad_norm", "", True, False, "mean"),
    ("train/lr", "", False, True, "line"),
    ("rewards/margins", "", False, False, "mean"),
    ("rewards/accuracies", "", False, False, "mean"),
    ("data/supervised_ratio", "", False, True, "line"),
    ("system/tokens_per_sec", "tokens/s", False, True, "mean"),
    ("system/reserved_gib", "GiB", False, True, "line"),
    ("system/rss_gib", "GiB", False, True, "line"),
)
_MEAN_FROM = 40
_LAYERS = 8


def render(comparison: Comparison) -> str:
    """The page as text."""
    made = shown(comparison)
    sections = [
        ("results", t("section.results"), _results(made, comparison.order)),
        ("curves", t("section.curves"), _curves(comparison)),
    ]
    several = len(made.pairs) > 1
    for one in made.pairs:
        suffix = f"-{one.pair.b.lower()}"
        title = one.title if several else t("section.differences")
        sections.append((f"pair{suffix}", title, _pair(one, suffix, several)))
    names = " · ".join(f"{run.id} {run.name}" for run in comparison.runs)
    return page(f"{names}: {made.head}", sections, _header(comparison, made))


def write(comparison: Comparison, path: str | os.PathLike) -> None:
    """Write the page to a file.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that is no page of ours.
    """
    write_page(render(comparison), path)


def _header(comparison: Comparison, made: Shown) -> str:
    good = "keep" if comparison.verdict.state in ("better", "identical", "no_difference") else "none"
    why = "".join(f"<li>{escape(line)}</li>" for line in made.why)
    runs = "".join(_run(one.run, one.change) for one in made.runs.values())
    return (
        f"<header><h1>{escape(' · '.join(run.name for run in comparison.runs))}</h1>"
        f'<div class="verdict {good}" role="status"><span class="name">{escape(made.head)}</span>'
        f'{f"<ul class=plain>{why}</ul>" if why else ""}</div><ul class="facts">{runs}</ul></header>'
    )


def _run(run: Run, change: str) -> str:
    more = f" <code>{escape(change)}</code>" if change else ""
    return f"<li>{run.id} <b>{escape(run.name)}</b>{more}</li>"


def _results(made: Shown, order: list[str]) -> str:
    runs = [made.runs[id_] for id_ in order]
    heads = "".join(f'<th scope="col">{one.run.id} {escape(one.run.name, 40)}</th>' for one in runs)
    rows = []
    for name in made.facts:
        best = _best(name, [one.facts[name] for one in runs])
        cells = "".join(_cell(one.cells[name], best is not None and one.facts[name] == best) for one in runs)
        rows.append(f'<tr><th scope="row">{escape(t(f"fact.{name}"))}</th>{cells}</tr>')
    return _table(f'<tr><th scope="col"></th>{heads}</tr>', rows, " numbers")


def _best(name: str, held: list[float | int | None]) -> float | None:
    """The best value where there is one and they differ."""
    known = [one for one in held if one is not None and one == one]
    if not FACTS[name] or len(set(known)) < 2:
        return None
    return min(known) if FACTS[name] == "lower" else max(known)


def _cell(said: str, best: bool) -> str:
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{escape(said)}</td>"


def _curves(comparison: Comparison) -> str:
    a = comparison.runs[0]
    where: dict[str, Places | None] = {run.id: places(a, run) for run in comparison.runs[1:]} | {a.id: None}
    ends: list[int] = []
    for run in comparison.runs:
        on_a = _on_a(column(run.curves, "train/loss")[0], where[run.id])
        ends += [int(on_a[0]), int(on_a[-1])] if len(on_a) else []
    if not ends:
        return f'<p class="absent">{escape(t("no_chart"))}</p>'
    span = Span(min(ends), max(ends))
    flags = _marks(comparison, where, span)
    charts = []
    for name, unit, log, zero, style in _SHOWN:
        series, notes = [], []
        for number_, run in enumerate(comparison.runs):
            one = _series(run, name, where[run.id], number_, style)
            if one is not None:
                series += _drawn(one, len(comparison.runs), style, notes)
        if len({one.colour for one in series}) >= 2:
            marks = flags if not charts else [Mark(one.step, one.until, "", one.title, one.kind) for one in flags]
            id_ = name.replace("/", "-").replace("_", "-")
            looks = {"unit": unit, "log": log, "zero": zero, "marks": marks, "notes": notes[:1]}
            charts.append(line_chart(id_, name, series, span, **looks))
    others = [pair for pair in comparison.pairs if pair.axis.name != "steps"]
    notes = [t("placed", run=pair.b, factor=number(pair.axis.factor)) for pair in others]
    return "".join(f'<p class="absent">{escape(note)}</p>' for note in notes) + "".join(charts)


def _on_a(steps: np.ndarray, where: Places | None) -> np.ndarray:
    return steps if where is None else np.round(where.of_b(steps)).astype(np.int64)


def _series(run: Run, name: str, where: Places | None, colour: int, style: str) -> Series | None:
    steps, values = column(run.curves, name)
    if not len(steps):
        return None
    at, first = np.unique(_on_a(steps, where), return_index=True)
    return Series(run.id, at, values[first], colour % 8, "dots" if style == "dots" else "line")


def _drawn(one: Series, runs: int, style: str, notes: list[str]) -> list[Series]:
    """The line; of a long one its mean, over the pale values where few runs are drawn."""
    if style != "mean" or len(one.steps) < _MEAN_FROM:
        return [one]
    mean, span = mean_of(one, one.name)
    notes.append(t("mean_note", span=span))
    raw = Series(one.name, one.steps, one.values, one.colour, "raw", scaled=runs <= 3)
    return [raw, mean] if runs <= 3 else [Series(mean.name, mean.steps, mean.values, mean.colour)]


def _marks(comparison: Comparison, where: dict[str, Places | None], span: Span) -> list[Mark]:
    marks = []
    for pair in comparison.pairs:
        found = pair.curves[0] if pair.curves else None
        if found is not None and found.since is not None and found.parting.kind in ("parted", "apart_for_a_while"):
            said = t("parted_mark", run=pair.b)
            marks.append(
                Mark(found.since, found.until, said, f"{said}: {curve_line(found)}", "warn", f"pair-{pair.b.lower()}")
            )
    for run in comparison.runs:
        for step in resumes(run):
            at = int(_on_a(np.array([step]), where[run.id])[0])
            marks.append(Mark(at, None, run.id, t("resume_mark", run=run.id), "resume"))
    return [mark for mark in marks if span.low <= mark.step <= span.high]


def _pair(one: ShownPair, suffix: str, several: bool) -> str:
    said = [line for line in (one.judged if several else "", one.relation) if line]
    body = "".join(f"<p><b>{escape(line)}</b></p>" for line in said)
    body += _list(t("section.reasons"), one.reasons)
    body += _differences(one)
    rows = [_row(name, line) for name, line in one.lines]
    body += f"<h3>{escape(one.axis)} <small>{prose(one.axis_why)}</small></h3>{_table('', rows)}"
    body += _layers(one.pair) + _probes(one)
    body += _list(t("section.caveats"), one.caveats)
    if one.name:
        body += f"<p>{escape(one.name)}</p>"
    return f'<div id="detail{suffix}">{body}</div>'


def _differences(one: ShownPair) -> str:
    found, rows = one.pair.differences, []
    for row in (row for group in one.groups.values() for row in group):
        note = f" <small>{escape(bracket(t(row.note)))}</small>" if row.note else ""
        rows.append(
            f'<tr><th scope="row">{escape(t(f"group.{row.group}"))}</th>'
            f"<td><code>{escape(row.key, 120)}</code>{note}</td><td>{escape(value(row, row.a), 300)}</td>"
            f"<td>{escape(value(row, row.b), 300)}</td></tr>"
        )
    said = []
    if found.compared == "nothing":
        said.append(t("nothing_known"))
    elif not rows:
        said.append(t("nothing_differs"))
    if found.compared == "settings":
        said.append(t("settings_only"))
    if one.others:
        said.append(t("other_packages", count=len(one.others), names=", ".join(one.others)))
    if found.folded:
        said.append(t("folded", keys=", ".join(found.folded)))
    head = f'<tr><th></th><th></th><th scope="col">{one.pair.a}</th><th scope="col">{one.pair.b}</th></tr>'
    return (_table(head, rows) if rows else "") + "".join(f'<p class="absent">{escape(line)}</p>' for line in said)


def _layers(pair: Pair) -> str:
    found = pair.layers
    most = [one for one in found.most if one.beyond][: _LAYERS * 3] if found else []
    if not most:
        return ""
    rows = [
        f'<tr><th scope="row">{escape(one.measure)}</th><td>{escape(one.name)}</td><td>{number(one.a)}</td>'
        f"<td>{number(one.b)}</td><td>x{one.ratio:.3g}</td></tr>"
        for one in most
    ]
    overall = t("joint").join(
        f"{measure}: {t('layers_all', ratio=f'{ratio:.3g}')}" for measure, ratio in found.overall.items()
    )
    head = f"<tr><th></th><th></th><th>{pair.a}</th><th>{pair.b}</th><th></th></tr>"
    return (
        f'<h3>{escape(t("section.layers"))}</h3><p class="absent">{escape(overall)}</p>{_table(head, rows, " numbers")}'
    )


def _probes(one: ShownPair) -> str:
    found = one.pair.probes
    if found is None:
        return ""
    order = ("broke", "fixed", "only_a", "only_b", "same_fail", "same_pass")
    rows = [
        f'<tr><th scope="row">{escape(row.name, 120)}</th>{_mark(row.a)}{_mark(row.b)}'
        f"<td>{escape(t(f'word.{row.word}'))}</td></tr>"
        for row in sorted(found.rows, key=lambda row: order.index(row.word))
    ]
    head = f"<tr><th></th><th>{one.pair.a}</th><th>{one.pair.b}</th><th></th></tr>"
    return f"<h3>{escape(t('section.probes'))}</h3><p>{escape(one.probes)}</p>{_table(head, rows)}"


def _mark(passed: bool | None) -> str:
    if passed is None:
        return "<td>–</td>"
    word = t("word.pass") if passed else t("word.fail")
    return f'<td><span class="tag {"keep" if passed else "kill"}">{escape(word)}</span></td>'


def _row(name: str, said: str) -> str:
    return f'<tr><th scope="row">{escape(name)}</th><td>{escape(said)}</td></tr>'


def _table(head: str, rows: list[str], more: str = "") -> str:
    top = f"<thead>{head}</thead>" if head else ""
    table = f'<table class="facts-table compare{more}">{top}<tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="region">{table}</div>'


def _list(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return f'<h3>{escape(title)}</h3><ul class="plain">{"".join(f"<li>{prose(line)}</li>" for line in lines)}</ul>'
