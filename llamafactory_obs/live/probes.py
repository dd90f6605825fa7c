"""The probes' newest results, from the rows of probes.jsonl."""

from dataclasses import dataclass, field

from ..record.schema import BASE
from .snapshot import Probe, ProbeRound

_PROMPT, _OUTPUT, _ERRORS = 500, 2000, 12
#: checkpoints whose counts are kept
_HISTORY = 200
#: suites that are kept
_SUITES = 8


@dataclass
class _Round:
    step: int
    checkpoint: str
    time: float = 0.0
    rows: dict[str, dict] = field(default_factory=dict)  # probe name -> what is kept of its row
    passed: int = 0

    def take(self, name: str, kept: dict) -> tuple[int, str, int, int]:
        """One probe's result; returns the counts."""
        before = self.rows.get(name)
        self.passed += kept["passed"] - (before["passed"] if before else 0)
        self.rows[name] = kept
        return self.step, self.checkpoint, self.passed, len(self.rows)


class Probes:
    """Takes the rows in the order written. The suite of the newest row is told: counts of several mean nothing."""

    def __init__(self):
        self._suites: dict[str, _Suite] = {}

    def add(self, row: dict) -> None:
        """One row of probes.jsonl; one that lacks what is needed is left out."""
        name, checkpoint, passed = row.get("probe"), row.get("checkpoint"), row.get("passed")
        if not isinstance(name, str) or not isinstance(checkpoint, str) or not isinstance(passed, bool):
            return
        key = str(row.get("suite"))
        suite = self._suites.pop(key, None) or _Suite()
        self._suites[key] = suite  # the newest stands last
        while len(self._suites) > _SUITES:
            del self._suites[next(iter(self._suites))]
        suite.add(row)

    def round(self) -> ProbeRound | None:
        """The newest checkpoint's, the base model's where there is no other."""
        return next(reversed(self._suites.values())).round() if self._suites else None


class _Suite:
    """The rows of one suite; keeps the outputs of the newest checkpoint and who passed at the one before.

    A checkpoint that is probed again, or saved anew by a resumed run, counts anew.
    """

    def __init__(self):
        self._base: _Round | None = None
        self._before: _Round | None = None
        self._newest: _Round | None = None
        self._history: dict[tuple[int, str], tuple[int, str, int, int]] = {}
        self._round: ProbeRound | None = None

    def add(self, row: dict) -> None:
        name, checkpoint, passed = row["probe"], row["checkpoint"], row["passed"]
        step, about = row.get("step", 0), (row.get("suite"), row.get("content"))
        held = self._base if checkpoint == BASE else self._newest
        again = held is not None and name in held.rows and held.rows[name]["about"] != about
        if held is None or (held.step, held.checkpoint) != (step, checkpoint) or again:
            held = self._open(step, checkpoint, held)
        held.time = row.get("time", 0.0)
        kept = {"passed": passed, "about": about, "shown": _shown(name, passed, row)}
        self._history[step, checkpoint] = held.take(name, kept)
        self._round = None

    def round(self) -> ProbeRound | None:
        newest = self._newest or self._base
        if newest is None or self._round is not None:
            return self._round
        before = self._before.rows if self._before and newest is self._newest else {}
        probes = tuple(
            Probe(**row["shown"], change=_change(before.get(name), row)) for name, row in newest.rows.items()
        )
        history = tuple(self._history.values())
        self._round = ProbeRound(newest.step, newest.checkpoint, newest.time, probes, history)
        return self._round

    def _open(self, step: int, checkpoint: str, held: _Round | None) -> _Round:
        opened = _Round(step, checkpoint)
        if checkpoint == BASE:
            self._base = opened
        else:
            same = held is not None and (held.step, held.checkpoint) == (step, checkpoint)
            if held is not None and not same:
                for row in held.rows.values():
                    row["shown"] = None  # only who passed is still wanted
                self._before = held
            self._newest = opened
        self._history.pop((step, checkpoint), None)
        while len(self._history) >= _HISTORY:
            del self._history[next(one for one in self._history if one[1] != BASE)]
        return opened


def _shown(name: str, passed: bool, row: dict) -> dict:
    errors, seconds = row.get("errors"), row.get("seconds")
    return {
        "name": name,
        "passed": passed,
        "errors": tuple(str(one) for one in errors[:_ERRORS]) if isinstance(errors, list) else (),
        "prompt": str(row.get("prompt", ""))[:_PROMPT],
        "output": str(row.get("output", ""))[:_OUTPUT],
        "seconds": float(seconds) if type(seconds) in (int, float) else None,
    }


def _change(before: dict | None, row: dict) -> str | None:
    if before is None:
        return None
    return {(True, False): "broke", (False, True): "fixed"}.get((before["passed"], row["passed"]), "same")
