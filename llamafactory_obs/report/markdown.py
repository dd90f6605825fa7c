"""The sheet as Markdown."""

from pathlib import Path

from ..charts.text import visible
from ..diagnosis.result import Diagnosis
from ..logs.curves import Curves
from ..summary import RunSummary
from ..texts.sentences import sentence
from .curves import curves_of
from .sheet import sheet
from .tables import MOST, tables
from .values import num, t

#: the first line of every sheet of ours; a file that begins otherwise is somebody's own and is not overwritten
MARK = "<!-- llamafactory-obs report -->"
_CURVE = 60


def markdown(summary: RunSummary, diagnosis: Diagnosis, curves: Curves, utc: bool = False) -> str:
    """The whole sheet: facts, curves, tables."""
    name = summary.brief.run_name or Path(summary.output_dir).resolve().name
    lines = [MARK, "", f"# {_plain(t('title', name=name))}", ""]
    for key, there in (("so_far", summary.going), ("plain_log", summary.source != "obs")):
        if there:
            lines += [t(key), ""]
    for group in sheet(summary, diagnosis, utc):
        lines += [f"## {group.title}", ""]
        lines += [f"- **{_plain(one.label)}**: {_plain(one.value or one.why)}" for one in group.lines]
        lines.append("")
    drawn = curves_of(curves, _CURVE)
    if drawn:
        width = max(len(one.name) for one in drawn)
        lines += [f"## {t('table.curves')}", "", "```"]
        lines += [f"{one.name:<{width}}  {one.bars}  {num(one.low)} .. {num(one.high)}" for one in drawn]
        lines += ["```", ""]
    for table in tables(summary, diagnosis, utc):
        lines += [f"## {table.title}", "", _row(table.heads), _row(["---"] * len(table.heads))]
        lines += [_row(row) for row in table.rows[:MOST]]
        if len(table.rows) > MOST:
            lines += ["", t("more", count=len(table.rows) - MOST)]
        lines.append("")
    if summary.remarks:
        lines += [f"## {t('table.remarks')}", "", *(f"- {_plain(sentence(one))}" for one in summary.remarks), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(words: str) -> str:
    """A text that makes no structure of its own: one line, no pipe, no HTML, nothing invisible."""
    line = " ".join(visible(words).split())
    return line.replace("|", "\\|").replace("<", "&lt;")
