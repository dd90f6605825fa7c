"""What the verb's exit code says of a run."""

from ..live import Snapshot

#: endings in order
_WELL = frozenset({"finished", "stopped", "notice"})


def code(snapshot: Snapshot) -> int:
    """0: it ended well, or goes on and nothing advises to end it; 1: it crashed, was killed or interrupted, or an open
    alert (once it has ended: the verdict of `diagnose`) advises to end it."""
    if snapshot.status != "ended":
        return int(any(one.event.action == "kill" for one in snapshot.alerts))
    if snapshot.ending not in _WELL:
        return 1
    if snapshot.verdict is not None:
        return int(snapshot.verdict.get("action") == "kill")
    return int(any(one.event.action == "kill" for one in snapshot.alerts))
