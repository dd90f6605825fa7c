"""A comparison for a person: the verdict, what differs, where the curves part, the results. 80 columns."""

from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..charts.text import visible
from .model import Comparison, Difference, Pair
from .shown import Shown, ShownPair, ShownRun, shown
from .words import bracket, fact, t, value

_STYLES = {"better": "bold green", "identical": "bold green", "no_difference": "bold", "fits_better": "bold yellow"}
#: columns of the table of three runs and more
_SHORT = ("steps", "train_loss", "eval_best", "accuracy", "probes", "hours", "tokens_per_s", "cost", "memory_gib")
#: of one group so many are shown
_MOST = 12


def show(comparison: Comparison, file: TextIO, by: str | None = None) -> None:
    """Print all of it."""
    console = Console(file=file, highlight=False, soft_wrap=False)
    console.width = min(console.width, 80)
    made = shown(comparison)
    console.print(Text(made.head, style=_STYLES.get(comparison.verdict.state, "bold yellow")), soft_wrap=True)
    for line in made.why:
        _indented(console, f"- {line}", 1)
    for one in made.runs.values():
        more = Text(f"  {one.change}", style="dim") if one.change else Text("")
        console.print(Text(f"{one.run.id}  ", style="bold") + Text(visible(one.run.name)) + more, soft_wrap=True)
    few = len(made.runs) == 2
    _results(console, made) if few else _table(console, comparison, made, by)
    for pair in made.pairs:
        if not few:
            console.print(Text(f"\n{pair.title}", style="bold underline"))
        _pair(console, pair, few)


def _pair(console: Console, one: ShownPair, full: bool) -> None:
    if not full:
        _indented(console, one.judged)
    if one.relation:
        _indented(console, one.relation, 0, "bold")
    _lines(console, t("section.reasons"), one.reasons)
    _differences(console, one)
    console.print(Text(one.axis, style="bold"))
    _indented(console, one.axis_why, style="dim")
    for name, line in one.lines:
        _labelled(console, name, line)
    if full:
        _layers(console, one.pair)
        _probes(console, one)
    _lines(console, t("section.caveats"), one.caveats)
    if one.name:
        console.print(Text(one.name, style="cyan"), soft_wrap=True)


def _differences(console: Console, one: ShownPair) -> None:
    found = one.pair.differences
    console.print(Text(t("section.differences"), style="bold"))
    if found.compared == "nothing":
        _indented(console, t("nothing_known"))
    elif not found.rows:
        _indented(console, t("nothing_differs"))
    if found.compared == "settings":
        _indented(console, t("settings_only"), style="dim")
    for group, rows in one.groups.items():
        for place, row in enumerate(rows[:_MOST]):
            _difference(console, t(f"group.{group}") if not place else "", row)
        if len(rows) > _MOST:
            _indented(console, t("and_more", count=len(rows) - _MOST), 12)
    if one.others:
        _indented(console, t("other_packages", count=len(one.others), names=", ".join(one.others[:_MOST])))
    if found.folded:
        _indented(console, t("folded", keys=", ".join(found.folded)), style="dim")


def _difference(console: Console, group: str, row: Difference) -> None:
    arrow = "→" if _can_show(console, "→") else "->"
    note = bracket(t(row.note)) if row.note else ""
    said = f"{visible(value(row, row.a))} {arrow} {visible(value(row, row.b))}{note}"
    head = f"  {_padded(group, 10)}{_padded(row.key, 30)} "
    _hanging(console, head, said, min(cell_len(head), 43))


def _results(console: Console, made: Shown) -> None:
    a, b = made.runs.values()
    heads = [_padded(t("section.results"), 26), _padded("A", 18), _padded("B", 18), t("against", a="A", b="B")]
    console.print(Text("".join(heads), style="bold"))
    for name in made.facts:
        cells = [_cell(name, a), _cell(name, b)]
        line = "  " + _padded(t(f"fact.{name}"), 24) + "".join(_padded(f"{cell} ", 18) for cell in cells)
        console.print(Text(f"{line}{_against(name, a.facts[name], b.facts[name])}".rstrip()), soft_wrap=True)


def _cell(name: str, one: ShownRun) -> str:
    if name == "probes" and one.run.summary.probes:
        passed, asked = one.run.summary.probes.totals[-1]
        return f"{passed}/{asked}"
    return one.cells[name]


def _against(name: str, a: float | int | None, b: float | int | None) -> str:
    if a is None or b is None or not a > 0 or not b > 0 or a == b or name in ("resumes", "alerts", "margin"):
        return ""
    return f"{100 * (b / a - 1):+.1f}%" if b < 10 * a else f"x{b / a:.3g}"


def _table(console: Console, comparison: Comparison, made: Shown, by: str | None) -> None:
    """One line a run; A is the reference and marked."""
    names = [name for name in _SHORT if name in made.facts]
    since = {pair.b: _parts(pair) for pair in comparison.pairs}
    heads = ["", t("short.run"), *(t(f"short.{name}") for name in names), t("short.parts")]
    rows = [heads]
    for letter in comparison.order:
        one = made.runs[letter]
        cells = [fact(name, one.facts[name], "") for name in names]
        rows.append([letter, visible(one.run.name), *cells, since.get(letter, "")])
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(heads))]
    widths[1] = max(4, min(widths[1], console.width - sum(widths) + widths[1] - len(widths)))
    for place, row in enumerate(rows):
        cells = [_padded(_cut(cell, width), width) for cell, width in zip(row, widths, strict=True)]
        style = "bold" if not place or row[0] == comparison.verdict.better else ""
        console.print(Text(" ".join(cells).rstrip(), style=style), soft_wrap=True)
    if by:
        _indented(console, t("sorted_by", fact=t(f"fact.{by}")), style="dim")


def _parts(pair: Pair) -> str:
    if pair.relation in ("identical", "repeat"):
        return "="
    found = pair.curves[0] if pair.curves else None
    return str(found.since) if found is not None and found.parting.kind == "parted" else "–"


def _layers(console: Console, pair: Pair) -> None:
    found = pair.layers
    if found is None or not any(one.beyond for one in found.most):
        return
    console.print(Text(t("section.layers"), style="bold"))
    for measure, overall in found.overall.items():
        most = [one for one in found.most if one.measure == measure and one.beyond][:4]
        if most:
            said = ", ".join(f"{one.name} x{one.ratio:.3g}" for one in most)
            _labelled(console, measure, visible(said) + bracket(t("layers_all", ratio=f"{overall:.3g}")))


def _probes(console: Console, one: ShownPair) -> None:
    found = one.pair.probes
    if found is None:
        return
    console.print(Text(t("section.probes"), style="bold"))
    _indented(console, one.probes)
    words: dict[str, list[str]] = {}
    for row in found.rows:
        words.setdefault(row.word, []).append(row.name)
    for word in ("broke", "fixed", "same_fail", "only_a", "only_b", "same_pass"):
        if word in words:
            _labelled(console, t(f"word.{word}"), visible(", ".join(words[word])))


def _lines(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        _indented(console, f"- {line}", 1)


def _labelled(console: Console, label: str, said: str) -> None:
    _hanging(console, f"  {_padded(label, 14)} ", visible(said), 17)


def _hanging(console: Console, head: str, said: str, hang: int) -> None:
    """A head and what belongs to it, wrapped by cells under each other."""
    line = Text(head + said)
    if cell_len(head + said) <= console.width:
        console.print(line, soft_wrap=True)
        return
    for place, part in enumerate(Text(said).wrap(console, max(20, console.width - hang))):
        part.rstrip()
        if place == 0 and cell_len(head) <= hang:
            console.print(Text(head) + part, soft_wrap=True)
            continue
        if place == 0:
            console.print(Text(head.rstrip()), soft_wrap=True)
        console.print(Text(" " * hang) + part, soft_wrap=True)


def _indented(console: Console, said: str, by: int = 2, style: str = "") -> None:
    hang = by + 2 if said.startswith("- ") else by
    for place, part in enumerate(Text(visible(said)).wrap(console, max(20, console.width - hang))):
        part.rstrip()
        part.stylize(style)
        console.print(Text(" " * (hang if place else by)) + part, soft_wrap=True)


def _padded(said: str, width: int) -> str:
    return said + " " * max(0, width - cell_len(said))


def _cut(said: str, width: int) -> str:
    while cell_len(said) > width:
        said = said[1:]
    return said


def _can_show(console: Console, said: str) -> bool:
    try:
        said.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
