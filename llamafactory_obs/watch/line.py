"""A run in one line, for a pipe or a log."""

import time

from ..charts.text import number
from ..live import CURVES, Snapshot
from ..texts import text
from ..texts.findings import title
from .words import clockwork, status, where
from .writing import Writing

#: cells of one line
_LONGEST = 400


def line(snapshot: Snapshot, writing: Writing) -> str:
    """Time, status, step, newest values, time to go, open alerts."""
    parts = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.now)), status(snapshot)[0]]
    if snapshot.status != "waiting":
        parts.append(where(snapshot))
        for name, key in zip(CURVES, ("loss", "eval", "norm", "tokens"), strict=True):
            if snapshot.curves[name].count:
                parts.append(text(f"watch.line.{key}", value=number(snapshot.curves[name].last)))
        parts += clockwork(snapshot)
        names = text("watch.joint").join(title(one.event.title) for one in snapshot.alerts)
        parts.append(text("watch.line.alerts", names=names) if names else text("watch.line.no_alert"))
    return "".join(char for char, _ in writing.cut("  ".join(parts), _LONGEST))
