"""Numbers, durations and names for the screen, in the language of the texts."""

import time

from ..live import Event, Snapshot
from ..texts import language, text, texts
from ..texts.findings import title, told

#: status or ending -> style
_LOOKS = {
    **dict.fromkeys(("waiting", "quiet", "stopped", "notice"), "bold yellow"),
    **dict.fromkeys(("evaluating", "saving", "finishing"), "cyan"),
    **dict.fromkeys(("training", "finished"), "bold green"),
}
_BAD = "bold red"
LEVELS = {"error": "bold red", "warn": "yellow", "info": ""}


def duration(seconds: float) -> str:
    """Two units at most: 12s, 3m20s, 1h02m, 2d03h."""
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 60:
        return text("watch.time.seconds", seconds=whole)
    if hours < 1:
        return text("watch.time.minutes", minutes=minutes, seconds=whole % 60)
    if days < 1:
        return text("watch.time.hours", hours=hours, minutes=minutes % 60)
    return text("watch.time.days", days=days, hours=hours % 24)


def clock(seconds: float, now: float) -> str:
    """The time of day; with the day where it is not today."""
    then, today = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%m-%d %H:%M", then)


def amount(value: float, currency: str) -> str:
    """Money: two digits behind the point, more below a tenth."""
    digits = f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"
    return f"{digits} {currency}".strip()


def status(snapshot: Snapshot) -> tuple[str, str]:
    """What it does or how it ended, and the style for it."""
    name = snapshot.ending or snapshot.status
    if name == "training" and snapshot.max_steps and snapshot.step >= snapshot.max_steps:
        name = "finishing"
    words = text(f"watch.status.{name}", time=duration(max(0.0, snapshot.now - (snapshot.heard or snapshot.now))))
    if name == "quiet":
        words += text("watch.joint") + text("watch.quiet.alive" if snapshot.alive else "watch.quiet.unknown")
    return words, _LOOKS.get(name, _BAD)


def where(snapshot: Snapshot) -> str:
    """Step and epoch, and the share that is done."""
    if snapshot.max_steps:
        out = text("watch.head.of", step=snapshot.step, of=snapshot.max_steps)
        out += f" {min(1.0, snapshot.step / snapshot.max_steps):.0%}"
    else:
        out = text("watch.head.step", step=snapshot.step)
    if snapshot.epoch is not None:
        key = "watch.head.epoch_of" if snapshot.epochs else "watch.head.epoch"
        out += "  " + text(key, epoch=snapshot.epoch, of=snapshot.epochs or 0)
    if snapshot.segment:
        out += "  " + text("watch.head.resumed", count=snapshot.segment + 1)
    return out


def clockwork(snapshot: Snapshot) -> list[str]:
    """Time used and to go, pace, cost: the most important first."""
    out = []
    if snapshot.seconds is not None:
        out.append(text("watch.head.used", time=duration(snapshot.seconds)))
    going = snapshot.status in ("training", "evaluating", "saving")
    to_go = snapshot.seconds_to_go if going else None
    if to_go is not None:
        at = clock(snapshot.now + to_go, snapshot.now)
        out.append(text("watch.head.done_at", time=duration(to_go), clock=at))
    if snapshot.cost is not None:
        cost = amount(snapshot.cost, snapshot.currency)
        if to_go is None:
            out.append(text("watch.head.cost", cost=cost))
        else:
            left = amount(snapshot.cost_to_go, snapshot.currency)
            cost = amount(snapshot.cost, "")
            out.append(text("watch.head.cost_to_go", cost=cost, to_go=left))
    if snapshot.step_seconds is not None:
        out.append(text("watch.head.pace", seconds=f"{snapshot.step_seconds:.3g}"))
    return out


def event_text(event: Event) -> str:
    """What happened, in one sentence or a few."""
    if event.kind == "resume" and (names := _not_restored(event.evidence.get("not_restored"))):
        parts = text("watch.joint").join(names)
        return text("watch.event.resume_without", step=event.step, parts=parts)
    if event.kind in ("start", "resume", "end"):
        return text(f"watch.event.{event.kind}", step=event.step)
    if event.kind == "probe" and event.title == "verdict" and isinstance(event.evidence.get("passed"), dict):
        passed = list(event.evidence["passed"].values())
        checkpoint = event.evidence.get("checkpoint", "")
        return text("watch.event.probe", checkpoint=checkpoint, passed=sum(map(bool, passed)), of=len(passed))
    if event.kind == "diagnosis" and event.title == "verdict":
        said = verdict(str(event.evidence.get("verdict", "")))
        return text("watch.event.verdict", verdict=event.text if language() == "en" else said)
    if event.kind == "alert":
        said = told(event.title, event.step, event.text, event.evidence)
        return text("watch.says", title=title(event.title), words=said)
    return text("watch.says", title=title(event.title), words=event.text) if event.text else title(event.title)


def _not_restored(lacks: object) -> list[str]:
    """What a checkpoint did not bring back, in words; of a record that may hold anything."""
    names = [lack.get("part") for lack in lacks if isinstance(lack, dict)] if isinstance(lacks, list) else []
    known = texts("continuity", language())
    return [known.get(f"part.{name}", name) for name in names if isinstance(name, str)]


def verdict(name: str) -> str:
    """A verdict of `diagnose` in words."""
    return texts("diagnose", language()).get(f"verdict.{name}") or title(name)
