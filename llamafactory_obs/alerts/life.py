"""The life of an alert: raised, repeated, escalated, resolved; and what of it is told, so that it is no noise.

Pure: step and time are given, nothing is read or written. The record has every finding; `tell` only says whether a
person hears of it now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..detect.endings import RANK, ended_by, goes_on, replaced_by, which
from ..detect.finding import Level

State = Literal["raised", "repeated", "escalated", "resolved"]


@dataclass(frozen=True)
class Told:
    """What one event is in the life of its alert: the key `alert` of its row.

    id      who says it, what it is, and which one where there may be several: `ranks/desync[column=train/lr]`
    state   raised, repeated, escalated (graver than what was told), resolved
    level   the gravest level that the alert has had
    since   the step at which it was first found; one that comes and goes within the cooldown is one alert
    count   how often it was found since then, this time included
    open    does it go on after this event?
    told    is it told in the terminal, the tracker and by webhook?
    """

    id: str
    state: State
    level: Level
    since: int
    count: int
    open: bool
    told: bool


class _Alert:
    """One alert: what is true of it, and what a person was told."""

    def __init__(self, alert_id: str, title: str, step: int):
        self.id, self.title, self.since = alert_id, title, step
        self.level: Level = "info"
        self.count = 0
        self.open = False
        self.found = (step, 0.0)  # step and time at which it was found last
        self.told: tuple[int, float] | None = None  # ... and told last
        self.told_level: Level = "info"
        self.told_open = False
        self.held: Any = None  # what was found last and not told


class Life:
    """All alerts of one run.

    An alert is told when it is raised, when it gets graver and when it is over. What comes again in `cooldown_steps`
    or `cooldown_s` of when it was told last is counted and not told. One that comes and goes is told once; where it has
    come back and is still there when the cooldown is over, `overdue` brings it.
    """

    def __init__(self, cooldown_steps: int = 50, cooldown_s: float = 300.0):
        self.cooldown_steps, self.cooldown_s = cooldown_steps, cooldown_s
        self._alerts: dict[str, _Alert] = {}

    def update(
        self,
        name: str,
        title: str,
        level: Level,
        step: int,
        time: float,
        evidence: Mapping | None = None,
        *,
        is_over: bool = False,
        keep: Any = None,
    ) -> Told:
        """Takes one finding.

        Args:
            name: who says it, a callback's YAML name.
            title: the finding's name.
            time: seconds.
            evidence: the finding's.
            is_over: it tells of something that has ended already (`Finding.until` is set).
            keep: what `overdue` gives back, where this is not told now.
        """
        evidence = evidence or {}
        ends = ended_by(title)
        if ends:
            return self._resolve(name, ends, step, evidence)
        for other in replaced_by(title):
            for alert in self._open(name, other, evidence):
                alert.open = alert.told_open = False
        alert_id = _id(name, title, evidence)
        alert = self._alerts.get(alert_id)
        if alert is None or not (alert.open or self._within(alert.found, step, time)):
            alert = self._alerts[alert_id] = _Alert(alert_id, title, step)
        alert.count += 1
        alert.found = (step, time)
        alert.open = alert.open or (goes_on(title, level) and not is_over)
        graver = alert.told is not None and RANK[level] > RANK[alert.told_level]
        alert.level = max(alert.level, level, key=RANK.__getitem__)
        tell = graver or not self._within(alert.told, step, time)
        if tell:
            self._tell(alert, level, step, time)
        else:
            alert.held = keep
        state: State = "escalated" if graver else "raised" if alert.count == 1 else "repeated"
        return _told(alert, state, tell)

    def overdue(self, step: int, time: float) -> list[tuple[Told, Any]]:
        """What has come back and was not told, now that the cooldown is over; with what was kept of it."""
        found = []
        for alert in self._alerts.values():
            untold = alert.open and not alert.told_open and alert.held is not None
            if untold and not self._within(alert.told, step, time):
                found.append((_told(alert, "repeated", True), alert.held))
                self._tell(alert, alert.level, step, time)
        return found

    def still_open(self) -> list[dict[str, Any]]:
        """What goes on, the gravest and oldest first: id, title, level, since, count."""
        alerts = sorted((a for a in self._alerts.values() if a.open), key=lambda a: (-RANK[a.level], a.since))
        return [{"id": a.id, "title": a.title, "level": a.level, "since": a.since, "count": a.count} for a in alerts]

    def is_open(self, titles: Iterable[str]) -> bool:
        """Does an alert with one of these titles go on?"""
        wanted = frozenset(titles)
        return any(alert.open and alert.title in wanted for alert in self._alerts.values())

    def restore(self, events: Iterable[Mapping], until: int) -> None:
        """Go on where a run was, after a resume.

        Args:
            events: rows of `events.jsonl`, as they were written.
            until: the step that training goes on from.
        """
        kept: list[Mapping] = []
        for event in events:
            if event.get("kind") in ("start", "resume"):  # what came after this step was thrown away
                kept = [one for one in kept if one["step"] <= event["step"]]
            elif isinstance(event.get("alert"), dict):
                kept.append(event)
        for event in kept:
            if event["step"] <= until:
                place = (event["name"], event["title"], event["level"], event["step"], event["time"])
                over = not event["alert"].get("open", True)
                self.update(*place, event.get("evidence"), is_over=over, keep=event)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _open(self, name: str, title: str, evidence: Mapping) -> list[_Alert]:
        """Alerts with this title that go on; where the evidence says which one, only that."""
        exact = _id(name, title, evidence)
        several = "" if which(evidence) else f"{exact}["
        return [
            alert
            for alert in self._alerts.values()
            if alert.open and (alert.id == exact or (several and alert.id.startswith(several)))
        ]

    def _resolve(self, name: str, ends: tuple[str, ...], step: int, evidence: Mapping) -> Told:
        ended = [alert for end in ends for alert in self._open(name, end, evidence)]
        if not ended:
            return self._close_moment(name, ends, step, evidence)
        tell = any(alert.told_open for alert in ended)
        for alert in ended:
            alert.open = alert.told_open = False
            alert.held = None
        return _told(min(ended, key=lambda alert: alert.since), "resolved", tell)

    def _close_moment(self, name: str, ends: tuple[str, ...], step: int, evidence: Mapping) -> Told:
        """The end of something that is not known to go on: of a moment, or of what began before all that is known."""
        moments = [self._alerts[one] for one in (_id(name, end, evidence) for end in ends) if one in self._alerts]
        if moments:
            last = max(moments, key=lambda alert: alert.found)
            return _told(last, "resolved", last.held is None)
        since = evidence.get("since")
        since = since if isinstance(since, int) else step
        return Told(_id(name, ends[0], evidence), "resolved", "info", since, 0, False, True)

    def _within(self, place: tuple[int, float] | None, step: int, time: float) -> bool:
        """Are this step and time inside the cooldown that began there?"""
        if place is None:
            return False
        return step - place[0] < self.cooldown_steps or time - place[1] < self.cooldown_s

    @staticmethod
    def _tell(alert: _Alert, level: Level, step: int, time: float) -> None:
        alert.told, alert.told_level, alert.told_open, alert.held = (step, time), level, alert.open, None


def _told(alert: _Alert, state: State, tell: bool) -> Told:
    return Told(alert.id, state, alert.level, alert.since, alert.count, alert.open, tell)


def _id(name: str, title: str, evidence: Mapping) -> str:
    about = which(evidence)
    return f"{name}/{title}[{about}]" if about else f"{name}/{title}"
