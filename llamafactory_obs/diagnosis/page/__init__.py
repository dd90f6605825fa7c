"""`diagnose --html`: one self-contained page of one log and what is said of it."""

import os

from ...charts import page, prose, write_page
from ...logs.curves import Curves
from ...texts import text
from ..headline import verdict_in_words
from ..result import Diagnosis
from .events import events_section
from .identity import identity_section, run_name
from .layers import layer_charts
from .probes import probe_section
from .shared import Drawing, drawing_of
from .training import training_charts
from .utilisation import memory_charts, time_charts
from .verdict import findings_section, header

__all__ = ["render", "write"]


def render(curves: Curves, diagnosis: Diagnosis) -> str:
    """The page as text: verdict, findings, charts, probes, events, identity. What the log lacks is named, not drawn.

    Args:
        curves: the log; the per-layer norms are read from beside it.
        diagnosis: what is said of it.
    """
    drawing = drawing_of(curves, diagnosis)
    sections = [("findings", text("diagnose.page.section.findings"), findings_section(curves, diagnosis))]
    if drawing is None:
        absent = f'<p class="absent">{text("diagnose.page.no_step")}</p>'
        sections.append(("curves", text("diagnose.page.section.curves"), absent))
    else:
        sections += _charts(drawing)
    for id_, title, content in (
        ("probes", text("diagnose.page.section.probes"), probe_section(curves)),
        ("events", text("diagnose.page.section.events"), events_section(curves)),
        ("run", text("diagnose.page.section.run"), identity_section(curves)),
    ):
        if content:
            sections.append((id_, title, content))
    missing = _missing(curves, drawing)
    if missing:
        sections.append(("absent", "", f'<p class="absent">{text("diagnose.page.not_in_log", missing=missing)}</p>'))
    return page(f"{run_name(curves)}: {verdict_in_words(diagnosis.verdict)}", sections, header(curves, diagnosis))


def write(curves: Curves, diagnosis: Diagnosis, path: str | os.PathLike) -> None:
    """Write the page to a file.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that is no page of ours.
    """
    write_page(render(curves, diagnosis), path)


def _charts(drawing: Drawing) -> list[tuple[str, str, str]]:
    parts = (
        ("curves", text("diagnose.page.section.curves"), training_charts),
        ("layers", text("diagnose.page.section.layers"), layer_charts),
        ("memory", text("diagnose.page.section.memory"), memory_charts),
        ("time", text("diagnose.page.section.time"), time_charts),
    )
    drawn = [(id_, title, "".join(draw(drawing))) for id_, title, draw in parts]
    return [section for section in drawn if section[2]]


def _missing(curves: Curves, drawing: Drawing | None) -> str:
    lines = list(drawing.missing) if drawing else []
    if not curves.probes:
        lines.append(text("diagnose.page.no_probes"))
    if not curves.events:
        lines.append(text("diagnose.page.no_events"))
    if not curves.run:
        lines.append(text("diagnose.page.no_run"))
    return "; ".join(prose(line) for line in lines)
