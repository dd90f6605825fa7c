"""Each start of training: when, how far, how it ended and why."""

import time
from dataclasses import replace
from itertools import pairwise
from statistics import median

from ..control.folder import control_folder
from ..control.presence import look
from ..record.clock import is_wrong
from .identity_facts import has_callback, mappings, number, options, pick
from .loaded import Loaded, Stretch
from .parts import Ended, Session

#: without a lock that says it: a run that wrote within so many seconds, or so many of its own steps, goes on
FRESH_S, FRESH_STEPS = 120.0, 20
_LATEST = 1e11  # Unix seconds
_STARTS = ("start", "resume")
_OVER = ("end", "crash", "oom", "interrupted", "retry")


def sessions_of(loaded: Loaded, now: float | None = None) -> tuple[list[Session], list[str]]:
    """The starts in order, and remarks about the clock.

    Args:
        now: Unix seconds, for tests.
    """
    if loaded.record is None:
        return [], []
    events = loaded.curves.events
    numbers = {event["segment"] for event in events if event.get("kind") in _STARTS and "segment" in event}
    numbers |= set(loaded.stretches)
    if not numbers:
        return [], []
    identity = {
        one["segment"]: one for one in mappings(loaded.curves.run, "segments") if type(one.get("segment")) is int
    }
    remarks: list[str] = []
    found = []
    last = max(numbers)
    for segment in sorted(numbers):
        mine = [event for event in events if event.get("segment", 0) == segment]
        stretch = loaded.stretches.get(segment, Stretch())
        known = identity.get(segment, {})
        going = segment == last and _goes_on(loaded, mine, stretch, now)
        found.append(_session(segment, mine, stretch, known, loaded, going, remarks))
    return _beside(found), remarks


def _session(
    segment: int, events: list[dict], stretch: Stretch, known: dict, loaded: Loaded, going: bool, remarks: list[str]
) -> Session:
    start = next((event for event in events if event.get("kind") in _STARTS), {})
    # what others write later with the newest segment (probes, notes) is no sign of the training's life
    own = [event for event in events if event.get("kind") not in ("probe", "note") or event.get("name") == "vram"]
    times = [one for event in own if (one := moment(event.get("time"))) is not None]
    began = moment(start.get("time")) or moment(known.get("started")) or min([*times, *stretch.times], default=None)
    last = max([*times[-1:], *stretch.times[-1:]], default=None)  # not the highest: the clock may have been set back
    over = next((moment(event.get("time")) for event in own if event.get("kind") in _OVER), None)
    trained = _train_s(began, last if over is None else over, over, stretch, segment, remarks)
    after_s = 0.0 if over is None or last is None else max(0.0, last - over)
    process = moment(known.get("process_started"))
    load_s = began - process if process is not None and began is not None and began >= process else None
    ended, by, why = ("going", "", "") if going else _ending(events, stretch, loaded)
    return Session(
        segment=segment,
        from_step=number(start.get("step")) or number(known.get("from_step")) or 0,
        first_step=stretch.first_step,
        last_step=stretch.last_step,
        process_started=process,
        began=began,
        last=last,
        load_s=load_s,
        train_s=trained,
        after_s=after_s,
        wall_s=None if trained is None else trained + (load_s or 0.0) + after_s,
        ended=ended,
        by=by,
        why=why,
    )


def moment(value: object) -> float | None:
    """Unix seconds of a possible time of day, else None."""
    seconds = number(value)
    return float(seconds) if seconds is not None and 0 < seconds < _LATEST else None


def _train_s(
    began: float | None,
    end: float | None,
    over: float | None,
    stretch: Stretch,
    segment: int,
    remarks: list[str],
) -> float | None:
    """Seconds from the begin of training to its end, without the jumps of the clock that can be told.

    Args:
        end: the event that ended it, else the last sign of life. over: the same, None where there was no such event.
    """
    if began is None or end is None:
        return None
    times = list(stretch.times)
    while over is not None and times and times[-1] > over:  # an evaluation after training
        times.pop()
    stamps = [began, *times]
    gaps = [b - a for a, b in pairwise(stamps)]
    usual = median([gap for gap in gaps if gap >= 0] or [0.0])
    steady = [gap if gap >= 0 else usual for gap in gaps]
    back = [gap for gap in gaps if gap < -1.0]  # rows of two threads may stand a moment out of order
    seconds = sum(steady) + max(0.0, end - stamps[-1])
    if back:
        remarks.append(f"start {segment}: the clock was set back {len(back)} times, {-sum(back):.0f} s in all")
    measured, by_clock = sum(stretch.step_s), sum(steady[: stretch.timed_rows])
    steps = (stretch.last_step or 0) - (stretch.first_step or 0) + 1
    if len(stretch.step_s) >= 0.9 * steps and is_wrong(by_clock, measured):
        remarks.append(
            f"start {segment}: by the clock the steps took {by_clock:.0f} s, by their own measurement {measured:.0f} s "
            "(clock set, or machine asleep): the measurement counts"
        )
        seconds += measured - by_clock
    return seconds


def _ending(events: list[dict], stretch: Stretch, loaded: Loaded) -> tuple[Ended, str, str]:
    """How a start ended, who made it end, and the record's words for it."""
    by_kind: dict[str, list[dict]] = {}
    for event in events:
        by_kind.setdefault(str(event.get("kind")), []).append(event)

    def said(kind: str) -> str:
        return str(by_kind[kind][-1].get("text", ""))

    if "oom" in by_kind:
        return "oom", "", said("crash") if "crash" in by_kind else said("oom")
    if "retry" in by_kind:
        return "retried", "auto_find_batch_size", said("retry")
    if "crash" in by_kind:
        return "crashed", "", said("crash")
    if "interrupted" in by_kind:
        return "interrupted", "", said("interrupted")
    if "end" not in by_kind:
        return "killed", "", ""
    end = number(by_kind["end"][-1].get("step")) or stretch.last_step or 0
    planned = _planned(events, loaded)
    if planned is None or end >= planned:
        return "finished", "", ""
    return _stopped(by_kind, loaded)


def _planned(events: list[dict], loaded: Loaded) -> float | None:
    """The plan of this start, with what `control --max-steps` made of it."""
    planned = next(
        (number(pick(event, "evidence", "max_steps")) for event in events if event.get("kind") in _STARTS),
        None,
    )
    for event in events:
        order = pick(event, "evidence", "order")
        if event.get("kind") == "control" and isinstance(order, dict) and _done(event, "max_steps"):
            planned = number(order.get("max_steps")) or planned
    return planned


def _stopped(by_kind: dict[str, list[dict]], loaded: Loaded) -> tuple[Ended, str, str]:
    if "notice" in by_kind:
        first = by_kind["notice"][0]
        signal = pick(first, "evidence", "signal")
        return "notice", str(signal or "a signal"), str(first.get("text", ""))
    for event in reversed(by_kind.get("control", [])):
        if _done(event, "stop"):
            return "stopped", _commander(event), str(event.get("text", ""))
    if "stop" in by_kind:
        event = by_kind["stop"][-1]
        return "stopped", f"alert {pick(event, 'evidence', 'alert') or ''}".strip(), str(event.get("text", ""))
    for event in reversed(by_kind.get("alert", [])):
        if options(loaded.curves.run, str(event.get("name"))).get("action") == "stop":
            return "stopped", f"{event.get('name')}, action: stop", str(event.get("text", ""))
    stops_early = loaded.curves.settings.get("early_stopping_steps") is not None
    if stops_early or has_callback(loaded.curves.run, "early_stopping"):
        return "stopped", "early_stopping", ""
    return "stopped", "", ""


def _done(event: dict, what: str) -> bool:
    results = pick(event, "evidence", "results")
    return any(
        isinstance(result, dict) and result.get("what") == what and result.get("status") != "refused"
        for result in (results if isinstance(results, list) else [])
    )


def _commander(event: dict) -> str:
    by = pick(event, "evidence", "by")
    if event.get("title") == "auto":
        return f"auto ({pick(event, 'evidence', 'finding') or ''})"
    if isinstance(by, dict):
        return f"control, pid {by.get('pid')} on {by.get('host')}"
    return "control"


def _goes_on(loaded: Loaded, events: list[dict], stretch: Stretch, now: float | None) -> bool:
    """Does the newest start train now? The run's lock says it; where there is none, how fresh its last row is."""
    if any(event.get("kind") in _OVER for event in events):
        return False
    folder = control_folder(loaded.output_dir)
    if folder.is_dir():
        state = look(folder).state
        if state != "never":
            return state == "running"
    times = [moment(event.get("time")) for event in events] + list(stretch.times)
    last = max((one for one in times if one is not None), default=None)
    if last is None:
        return False
    gaps = [b - a for a, b in pairwise(stretch.times) if b > a]
    fresh = max(FRESH_S, FRESH_STEPS * median(gaps)) if gaps else FRESH_S
    return 0 <= (time.time() if now is None else now) - last < fresh


def _beside(found: list[Session]) -> list[Session]:
    """With what a start says only beside the next one: the pause, the steps that were made again."""
    out = []
    for place, one in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        if after is None:
            out.append(one)
            continue
        begins = after.process_started or after.began
        pause = None if one.last is None or begins is None else max(0.0, begins - one.last)
        again = 0 if one.last_step is None else max(0, one.last_step - after.from_step)
        out.append(replace(one, pause_s=pause, repeated_steps=again))
    return out
