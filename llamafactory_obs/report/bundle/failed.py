"""What went wrong with single samples: probes that failed, and the batches of steps that an alert names."""

from ...errors import ConfigError
from ...record.probes import is_whole
from ...record.samples import read_samples
from ...summary import Loaded

#: who speaks of single steps and samples
_NAMES = frozenset(("label_mask", "samples", "grad_norm_spike", "diagnose"))
#: steps whose batches are looked up
MOST = 500


def failed_probes(loaded: Loaded) -> list[dict]:
    """Rows of `probes.jsonl` that did not pass."""
    return [row for row in loaded.curves.probes if is_whole(row) and not row["passed"]]


def failed_samples(loaded: Loaded) -> list[dict]:
    """`{"step", "title", "text", "evidence", "samples": rank -> micro-batches}`; samples None where not recorded."""
    events = [
        event
        for event in loaded.curves.events
        if event.get("kind") in ("alert", "summary", "untrusted_loss")
        and event.get("name") in _NAMES
        and event.get("level") != "info"
        and type(event.get("step")) is int
    ][:MOST]
    batches: dict = {}
    if events and loaded.record is not None:
        try:
            batches = read_samples(loaded.record, {event["step"] for event in events})
        except ConfigError:
            batches = {}
    return [
        {name: event.get(name) for name in ("step", "name", "title", "text", "evidence")}
        | {"samples": batches.get(event["step"])}
        for event in events
    ]
