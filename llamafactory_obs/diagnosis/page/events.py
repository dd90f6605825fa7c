"""The events of the record as a list."""

from ...charts import event_list
from ...logs.curves import Curves


def events_section(curves: Curves) -> str:
    """The list as HTML; "" where there is no event."""
    events = [event for event in curves.events if isinstance(event, dict)]
    return event_list("event-list", "What happened; a step shows it in the charts", events) if events else ""
