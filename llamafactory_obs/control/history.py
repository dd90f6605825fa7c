"""What control has done to this run before a resume, read from its events."""

from dataclasses import dataclass
from pathlib import Path

from ..record.reader import read_rows
from ..record.schema import EVENTS

_TAIL_BYTES = 8 << 20


@dataclass(frozen=True)
class History:
    """Attributes:
    lr_scale: factor that the schedule of the checkpoint carries.
    auto_times, auto_last: how often `auto` has scaled the rate, and at which step the last time.
    """

    lr_scale: float = 1.0
    auto_times: int = 0
    auto_last: int | None = None


def history(record: Path, step: int) -> History:
    """What the checkpoint of `step` has in it of the orders that were carried out.

    Args:
        record: the record's folder.
    """
    kept: list[tuple[float, dict]] = []
    for event in read_rows(record / EVENTS, tail_bytes=_TAIL_BYTES)[0]:
        if event.get("kind") in ("start", "resume"):  # what came after its checkpoint was left behind
            kept = [item for item in kept if item[0] <= event["step"]]
        elif event.get("kind") == "control" and "lr_scale" in (event.get("evidence") or {}):
            before_a_step = event["evidence"].get("before_first_step") is True  # so not in a checkpoint of its step
            kept.append((event["step"] + 0.5 * before_a_step, event))
    kept = [item for item in kept if item[0] <= step]
    by_itself = [event["step"] for _, event in kept if event.get("title") == "auto"]
    scale = kept[-1][1]["evidence"]["lr_scale"] if kept else 1.0
    return History(float(scale), len(by_itself), by_itself[-1] if by_itself else None)
