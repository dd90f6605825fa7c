"""The events of the record as a list."""

from ...charts import event_list
from ...logs.curves import Curves
from ...texts import language, text, texts
from ...texts.findings import title, told


def events_section(curves: Curves) -> str:
    """The list as HTML; "" where there is no event."""
    events = [_in_words(event) for event in curves.events if isinstance(event, dict)]
    return event_list("event-list", text("page.what_happened"), events) if events else ""


def _in_words(event: dict) -> dict:
    """The event as a person reads it; in English as it is recorded."""
    if language() == "en":
        return event
    kind, name, evidence = str(event.get("kind") or ""), str(event.get("title") or ""), event.get("evidence")
    evidence = evidence if isinstance(evidence, dict) else {}
    said = told(name, event.get("step"), str(event.get("text") or ""), evidence)
    kinds = texts("page", language())
    return event | {"kind": kinds.get(f"kind.{kind}", kind), "title": title(name), "text": said}
