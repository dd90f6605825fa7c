"""One run as the board shows it: parts, each with the tick at which it changed last."""

import math
from dataclasses import asdict
from pathlib import Path

import orjson

from ..charts.text import compact, cut, visible
from ..live import CURVES, Follower, Snapshot
from ..record.schema import EVENTS, FOLDER, PROBES
from .lines import Line
from .marks import Marks
from .matrix import Matrix
from .places import outside
from .said import title, told

#: of a curve: what a wide screen shows, and a zoom into it
_POINTS = 4000
#: names of the curves on the page
_NAMES = dict(zip(("loss", "eval", "norm", "speed"), CURVES, strict=True))
#: seconds after which the clock's own numbers are told again though nothing was written
_CLOCK = 20.0


class OneRun:
    """Follows one run. Not for several threads at once, but for `probe`."""

    def __init__(self, folder: Path, price: float | None):
        self.folder, self._price = folder, price
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(self.folder, price=self._price, points=_POINTS)
        self._matrix = Matrix(self.folder / FOLDER / PROBES)
        self._marks = Marks(self.folder / FOLDER / EVENTS)
        self._lines = {name: Line() for name in _NAMES}
        self._parts: dict[str, tuple[int, bytes]] = {}
        self._told = (-1, 0.0)  # version and time of the head
        self._refused = ""
        self.snapshot: Snapshot | None = None

    def update(self, tick: int) -> bool:
        """Read what is new, as of this tick; True where something has changed."""
        refused = outside(self.folder)
        if refused:
            # nothing more is read, and nothing that was read is shown
            if not self._refused:
                self._begin()
            self._refused = refused
            return self._put("head", {"refused": visible(refused)}, tick)
        if self._refused:
            self._begin()
        snapshot = self.snapshot = self._follower.update()
        changed = False
        for name, line in self._lines.items():
            changed = line.update(snapshot.curves[_NAMES[name]], tick) or changed
        version, when = self._told
        if snapshot.version != version or snapshot.now - when > _CLOCK:
            self._told = (snapshot.version, snapshot.now)
            changed = self._put("head", _head(snapshot), tick) or changed
            changed = self._put("alerts", _alerts(snapshot), tick) or changed
            changed = self._put("checkpoints", _checkpoints(snapshot), tick) or changed
        if self._marks.update() or "marks" not in self._parts:
            changed = self._put("marks", self._marks.shown(), tick) or changed
        if self._matrix.update() or "probes" not in self._parts:
            changed = self._put("probes", self._matrix.shown(), tick) or changed
        return changed

    def failed(self, error: Exception, tick: int) -> bool:
        """It could not be read; the next look tries again from the beginning."""
        self._begin()
        return self._put("head", {"failed": visible(cut(f"{type(error).__name__}: {error}", 300))}, tick)

    def findings(self, value: dict, tick: int) -> bool:
        """Take what `diagnose` says, see `examine.py`."""
        return self._put("findings", value, tick)

    def since(self, tick: int) -> bytes | None:
        """What has changed after a tick, as a JSON object; None where nothing has."""
        out = [b'"%s":%s' % (name.encode(), part) for name, (when, part) in self._parts.items() if when > tick]
        lines = {name: news for name, line in self._lines.items() if (news := line.since(tick)) is not None}
        if lines:
            out.append(b'"curves":' + orjson.dumps(lines))
        return b"{" + b",".join(out) + b"}" if out else None

    def probe(self, number: int) -> dict | None:
        """One raw answer, see `Matrix.one`."""
        return None if outside(self.folder) else self._matrix.one(number)

    def _put(self, name: str, value: object, tick: int) -> bool:
        part = orjson.dumps(value)
        if name in self._parts and self._parts[name][1] == part:
            return False
        self._parts[name] = (tick, part)
        return True


def _head(snapshot: Snapshot) -> dict:
    """State, place, time, cost, machine, mask. Numbers that are not finite are words."""
    names = ("status", "ending", "source", "heard", "step", "max_steps", "epoch", "epochs", "segment", "seconds")
    names += ("seconds_to_go", "step_seconds", "cost", "cost_to_go", "currency")
    out = {name: _shown(getattr(snapshot, name)) for name in names}
    out |= {"now": snapshot.now, "machine": snapshot.machine, "mask": snapshot.mask, "torn": snapshot.torn}
    out["latest"] = {name: snapshot.latest.get(column) for name, column in _NAMES.items()}
    out["lr"] = snapshot.latest.get("train/lr")
    out["about"] = {name: _shown(value) for name, value in snapshot.about.items()}
    return _plain(out)


def _alerts(snapshot: Snapshot) -> list[dict]:
    """Open ones, the gravest first."""
    return [
        {
            "id": visible(alert.id),
            "level": alert.level,
            "since": alert.since,
            "count": alert.count,
            "name": visible(alert.event.name),
            "title": title(alert.event.title),
            "text": told(alert.event.title, alert.event.step, alert.event.text, alert.event.evidence),
            "action": visible(alert.event.action),
        }
        for alert in snapshot.alerts[:200]
    ]


def _checkpoints(snapshot: Snapshot) -> list[dict]:
    out = []
    for checkpoint in snapshot.checkpoints:
        plain = asdict(checkpoint) | {"name": visible(Path(checkpoint.path).name)}
        plain.pop("path")
        out.append({key: _shown(value) for key, value in plain.items()})
    return _plain(out)


def _shown(value: object) -> object:
    if isinstance(value, str):
        return visible(cut(value, 300))
    if isinstance(value, list):
        return [_shown(one) for one in value[:16]]
    return value


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, int) and not -(2**53) < value < 2**53:
        return float(value) if abs(value) < 1e300 else None
    if isinstance(value, float):
        # counts of seconds keep their digits, as Unix time has ten of them
        return value if math.isfinite(value) and abs(value) > 1e6 else compact(value)
    return value
