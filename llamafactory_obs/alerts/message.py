"""What a message says: the words of one event or of several, for people, within a service's size."""

import time
from collections.abc import Sequence

from .. import texts
from ..texts.findings import title, told

#: a message that is told this many seconds after what it tells of says so
LATE_S = 60.0

_CUT = " …"


def head(event: dict) -> str:
    """One line: how grave, of whom, what and in which state."""
    life = event.get("alert") or {}
    state = life.get("state", "")
    word = texts.text("alerts.word.over" if state == "resolved" else f"alerts.word.{event['level']}")
    note = texts.text(f"alerts.state.{state}") if state in ("repeated", "escalated") else ""
    about = event["title"] if texts.language() == "en" else title(event["title"])
    return texts.text("alerts.head", word=word, step=event["step"], name=event["name"], title=about) + note


def body(event: dict, now: float) -> str:
    """What happened and what to do; since when, how often, at what time, and whether this comes late."""
    facts = []
    life = event.get("alert") or {}
    if life.get("since", event["step"]) != event["step"]:
        facts.append(texts.text("alerts.since", since=life["since"]))
    if life.get("count", 0) > 1:
        facts.append(texts.text("alerts.seen", count=life["count"]))
    facts.append(time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(event["time"])))
    late = now - event["time"]
    if late >= LATE_S:
        facts.append(texts.text("alerts.late", duration=duration(late)))
    said = told(event["title"], event["step"], event["text"], event.get("evidence") or {})
    return f"{said}\n{', '.join(facts)}"


def duration(seconds: float) -> str:
    """`90 s`, `12 min`, `3.5 h`, `2.1 days`."""
    if seconds < 120:
        return texts.text("alerts.seconds", n=seconds)
    if seconds < 7200:
        return texts.text("alerts.minutes", n=seconds / 60)
    if seconds < 172800:
        return texts.text("alerts.hours", n=seconds / 3600)
    return texts.text("alerts.days", n=seconds / 86400)


def cut(text: str, limit: int) -> str:
    """The text, shortened to `limit` bytes of UTF-8; never in the middle of a character."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    room = max(0, limit - len(_CUT.encode()))
    return raw[:room].decode("utf-8", "ignore") + _CUT


def fit(events: Sequence[dict], now: float, limit: int) -> tuple[list[str], int]:
    """The blocks of text of as many events as fit into one message, the oldest first.

    Returns:
        One block for each of them (a head line and a body), and how many they are: at least one, which is shortened
        where it alone is too long.
    """
    blocks, size = [], 0
    for event in events:
        block = f"{head(event)}\n{body(event, now)}"
        added = len(block.encode("utf-8", "replace")) + 2
        if blocks and size + added > limit:
            break
        blocks.append(cut(block, limit - 2))
        size += added
    return blocks, len(blocks)


def gravest(events: Sequence[dict]) -> str:
    """The level that a message of these events has: `over` where all of them are over."""
    open_ones = [event for event in events if (event.get("alert") or {}).get("state") != "resolved"]
    if not open_ones:
        return "over"
    return max((event["level"] for event in open_ones), key=("info", "warn", "error").index)
