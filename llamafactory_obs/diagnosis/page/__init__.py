"""`diagnose --html`: one self-contained page of one log and what is said of it."""

import os

from ...charts import page, prose, write_page
from ...logs.curves import Curves
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
    sections = [("findings", "Findings", findings_section(curves, diagnosis))]
    if drawing is None:
        absent = '<p class="absent">The log holds no step with a number: no chart is drawn.</p>'
        sections.append(("curves", "Curves", absent))
    else:
        sections += _charts(drawing)
    for id_, title, content in (
        ("probes", "Probes", probe_section(curves)),
        ("events", "Events", events_section(curves)),
        ("run", "Run", identity_section(curves)),
    ):
        if content:
            sections.append((id_, title, content))
    missing = _missing(curves, drawing)
    if missing:
        sections.append(("absent", "", f'<p class="absent">Not in this log: {missing}.</p>'))
    return page(f"{run_name(curves)}: {diagnosis.verdict}", sections, header(curves, diagnosis))


def write(curves: Curves, diagnosis: Diagnosis, path: str | os.PathLike) -> None:
    """Write the page to a file.

    Raises:
        ConfigError: the folder is not there, the file cannot be written, or it is one that is no page of ours.
    """
    write_page(render(curves, diagnosis), path)


def _charts(drawing: Drawing) -> list[tuple[str, str, str]]:
    parts = (
        ("curves", "Curves", training_charts),
        ("layers", "Layers", layer_charts),
        ("memory", "Memory", memory_charts),
        ("time", "Time", time_charts),
    )
    drawn = [(id_, title, "".join(draw(drawing))) for id_, title, draw in parts]
    return [section for section in drawn if section[2]]


def _missing(curves: Curves, drawing: Drawing | None) -> str:
    lines = list(drawing.missing) if drawing else []
    if not curves.probes:
        lines.append("probe results (`llamafactory-obs probe DIR`, or the callback `probe`)")
    if not curves.events:
        lines.append("events")
    if not curves.run:
        lines.append("the run's identity (`run.json`)")
    return "; ".join(prose(line) for line in lines)
