"""Things that happened, in order: a level, a step that the charts jump to, who said it and what."""

from collections.abc import Sequence

from ..texts import text
from .plot import identifier
from .text import escape

_LEVELS = ("error", "warn", "info")


def event_list(name: str, title: str, events: Sequence[dict], most: int = 300) -> str:
    """The list as HTML, with a filter by level.

    Args:
        events: rows with `step`, `level`, `kind`, `name`, `title`, `text`; a missing field is empty.
        most: entries shown; the gravest are kept, of equal ones the newest.
    """
    ranked = sorted(range(len(events)), key=lambda i: (_rank(events[i]), -i))
    shown = [events[i] for i in sorted(ranked[:most])]
    counts = {level: sum(1 for event in events if _level(event) == level) for level in _LEVELS}
    filters = "".join(
        f'<label><input type="checkbox" value="{level}" checked> {text(f"charts.level.{level}")} '
        f"<span>{counts[level]}</span></label>"
        for level in _LEVELS
        if counts[level]
    )
    left = len(events) - len(shown)
    rest = f'<p class="note">{text("charts.events.more", count=left)}</p>' if left else ""
    return (
        f'<section class="events" id="{identifier(name)}"><h3>{escape(title)}</h3>'
        f'<div class="filter" role="group" aria-label="{text("charts.events.levels")}">{filters}</div>'
        f"<ol>{''.join(map(_entry, shown))}</ol>{rest}</section>"
    )


def _level(event: dict) -> str:
    return event.get("level") if event.get("level") in _LEVELS else "info"


def _rank(event: dict) -> int:
    return _LEVELS.index(_level(event))


def _entry(event: dict) -> str:
    level, step = _level(event), event.get("step")
    where = "<span>–</span>"
    if isinstance(step, int) and not isinstance(step, bool):
        shows = text("charts.events.show", step=step)
        where = f'<button type="button" class="go" data-step="{step}" aria-label="{shows}">{step}</button>'
    kind = event.get("kind") or ""
    title = event.get("title") or ""
    head = f"{escape(kind)} · {escape(title)}" if title and title != kind else escape(kind)
    who = f"<em>{escape(event['name'])}</em> " if event.get("name") else ""
    return (
        f'<li class="{level}"><span class="level">{text(f"charts.level.{level}")}</span>{where}'
        f"<div><b>{head}</b> {who}<p>{escape(event.get('text') or '', 1000)}</p></div></li>"
    )
