"""The sheet as one self-contained page: facts first, then findings, curves, probes, tables, events."""

from pathlib import Path

from ..charts import escape, page, prose
from ..diagnosis.page.events import events_section
from ..diagnosis.page.layers import layer_charts
from ..diagnosis.page.probes import probe_section
from ..diagnosis.page.shared import drawing_of
from ..diagnosis.page.training import training_charts
from ..diagnosis.page.utilisation import memory_charts, time_charts
from ..diagnosis.page.verdict import findings_section
from ..diagnosis.result import Diagnosis
from ..logs.curves import Curves
from ..summary import RunSummary
from ..texts import text
from ..texts.sentences import sentence
from .outcome import headline, verdict
from .sheet import Group, sheet
from .tables import Table, tables
from .values import duration, num, t

#: tables that the page shows in another form: cards, a matrix
_OTHERWISE = ("findings", "probes")


def render(summary: RunSummary, diagnosis: Diagnosis, curves: Curves, utc: bool = False) -> str:
    """The page as text."""
    sections = [("sheet", t("table.sheet"), _sheet(summary, sheet(summary, diagnosis, utc)))]
    sections.append(("findings", t("table.findings"), findings_section(curves, diagnosis)))
    drawing = drawing_of(curves, diagnosis)
    if drawing is not None:
        parts = (training_charts, layer_charts, memory_charts, time_charts)
        drawn = [chart for part in parts for chart in part(drawing)]
        absent = t("table.absent", what="; ".join(drawing.missing)) if drawing.missing else ""
        note = f'<p class="absent">{prose(absent)}</p>' if absent else ""
        sections.append(("curves", t("table.curves"), "".join(drawn) + note))
    sections.append(("probes", t("table.probes"), probe_section(curves)))
    sections += [
        (table.key, table.title, _table(table))
        for table in tables(summary, diagnosis, utc)
        if table.key not in _OTHERWISE
    ]
    sections.append(("events", t("table.events"), events_section(curves)))
    if summary.remarks:
        items = "".join(f"<li>{prose(sentence(one))}</li>" for one in summary.remarks)
        sections.append(("remarks", t("table.remarks"), f'<ul class="plain">{items}</ul>'))
    name = summary.brief.run_name or Path(summary.output_dir).resolve().name
    there = [section for section in sections if section[2]]
    return page(t("title", name=name), there, _head(summary, diagnosis, name))


def _head(summary: RunSummary, diagnosis: Diagnosis, name: str) -> str:
    """The name, the verdict, and the numbers that people ask for first."""
    action = diagnosis.action if diagnosis.action in ("kill", "keep") else "none"
    vram, best = summary.memory.reserved_gib, summary.evaluations.best
    facts = [
        ("steps", f"{summary.steps:,}"),
        ("duration", duration(summary.wall_s) if summary.wall_s is not None else ""),
        ("cost", f"{summary.cost:,.2f} {summary.price.currency}".strip() if summary.cost is not None else ""),
        ("vram", t("value.gib", gib=num(vram)) if vram is not None else ""),
        ("eval_best", num(best[2]) if best is not None else ""),
        ("starts", str(len(summary.sessions)) if summary.sessions else ""),
    ]
    items = "".join(f"<li>{escape(t(f'label.{key}'))} <b>{escape(value)}</b></li>" for key, value in facts if value)
    return (
        f"<header><h1>{escape(t('title', name=name))}</h1>"
        f'<div class="verdict {action}" role="status">'
        f'<span class="word">{escape(text(f"diagnose.action.{action}"))}</span>'
        f'<span class="name">{escape(verdict(diagnosis))}</span><p>{prose(headline(diagnosis))}</p></div>'
        f'<ul class="facts">{items}</ul></header>'
    )


def _sheet(summary: RunSummary, groups: list[Group]) -> str:
    """Each group as a small table; what was not measured is said in the same place."""
    said = [t(key) for key, there in (("so_far", summary.going), ("plain_log", summary.source != "obs")) if there]
    notes = "".join(f'<p class="absent">{prose(words)}</p>' for words in said)
    return f'{notes}<div class="sheet">{"".join(_group(group) for group in groups)}</div>'


def _group(group: Group) -> str:
    rows = "".join(
        f'<tr id="fact-{escape(group.key)}-{number}"><th scope="row">{escape(line.label)}</th>'
        f"<td{'' if line.value else ' class=absent'}>{prose(line.value or line.why)}</td></tr>"
        for number, line in enumerate(group.lines)
    )
    table = f'<table class="facts-table"><tbody>{rows}</tbody></table>'
    return f'<div class="card"><h3>{escape(group.title)}</h3>{table}</div>'


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "".join(f"<tr>{''.join(f'<td>{prose(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table class="list"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
