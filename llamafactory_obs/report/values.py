"""Numbers as the sheet shows them."""

import time

from ..charts.text import number as plain_number
from ..summary import Session, Why
from ..texts import language, text, texts

DASH = "–"


def t(key: str, /, **values: object) -> str:
    """One text of the sheet."""
    return text(f"report.{key}", **values)


def named(kind: str, word: str) -> str:
    """A word of the record as people read it; one that we do not know stays as it is."""
    return texts("report", language()).get(f"{kind}.{word.replace(' ', '_')}", word)


def num(value: float | None) -> str:
    """Four digits; whole numbers with separators."""
    if isinstance(value, int) or (isinstance(value, float) and 1e4 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return plain_number(value)


def count(value: int | None) -> str:
    """A large count in short: 7.6 B, 1.54 M."""
    if value is None:
        return DASH
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:,}"


def duration(seconds: float | None) -> str:
    """Seconds in two units of a clock."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return t("unit.s", s=seconds)
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return t("unit.min_s", min=minutes, s=rest)
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return t("unit.h_min", h=hours, min=minutes)
    return t("unit.d_h", d=hours // 24, h=hours % 24, min=minutes)


def moment(seconds: float | None, utc: bool = False) -> str:
    """A time of day, in the reader's time zone or in UTC."""
    if seconds is None:
        return DASH
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds) if utc else time.localtime(seconds))


def zone(seconds: float | None, utc: bool = False) -> str:
    """The offset from UTC that `moment` has there: UTC+08:00."""
    offset = 0 if utc or seconds is None else time.localtime(seconds).tm_gmtoff or 0
    if not offset:
        return "UTC"
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"UTC{'+' if offset > 0 else '-'}{hours:02d}:{minutes:02d}"


def size(count_: int | None) -> str:
    """Bytes for people."""
    if count_ is None:
        return DASH
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count_ >= 1 << power:
            return f"{count_ / (1 << power):.3g} {name}"
    return f"{count_} B"


def ended(session: Session) -> str:
    """How a start ended, by whom, and the first sentence of why."""
    word = t(f"ended.{session.ended}")
    why = first_line(session.why)
    if session.by and why:
        return t("ended.by_why", ended=word, by=session.by, why=why)
    if session.by:
        return t("ended.by", ended=word, by=session.by)
    return t("ended.why", ended=word, why=why) if why else word


def first_line(words: str, most: int = 160) -> str:
    """The first line of a text, cut at a word."""
    line = " ".join(words.strip().split("\n")[0].split()).rstrip(".")
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " ..."


#: there is none, which is an answer; of all else there is one that nobody measured
_NONE = frozenset(
    ("no_gpu", "no_eval", "one_eval", "still_falling", "no_checkpoint", "no_gates", "no_probes", "no_git", "no_vllm")
)


def reason(why: Why) -> str:
    """Why something was not measured, and how to have it next time."""
    key, following = "without" if why.code in _NONE else "missing", why.next()
    return t(f"{key}_next", why=why.why(), next=following) if following else t(key, why=why.why())
