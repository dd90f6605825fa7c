"""What happened in a run, by step: the record's events, starts of training, evaluations, checkpoints, findings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..continuity.offline import continuity
from ..continuity.said import BROKEN
from ..continuity.words import in_words
from ..detect import Finding
from ..logs.curves import Curves
from ..texts import text

#: the order of the rows of marks
KINDS = ("error", "warn", "finding", "start", "lr", "checkpoint", "eval", "other")
#: mark of each kind in a terminal
MARKS = {
    "error": "!",
    "warn": "w",
    "finding": "^",
    "start": "|",
    "lr": "L",
    "checkpoint": "C",
    "eval": "E",
    "other": ".",
}
#: events of our record that are told by the log itself, or by everything else
_LEFT_OUT = ("memory_peak",)


@dataclass(frozen=True)
class Happening:
    """One event on the axis.

    Attributes:
        kind: one of `KINDS`.
        who: the callback that said it; "log" for what follows from the log alone.
        until: the last step it holds for; None for a moment.
    """

    step: int
    kind: str
    who: str
    title: str
    text: str
    until: int | None = None
    evidence: dict = field(default_factory=dict)


def happenings(curves: Curves, findings: Iterable[Finding] = ()) -> list[Happening]:
    """All of them by step; `findings` are those of `diagnose`."""
    found = [_of_record(event) for event in curves.events if event.get("kind") not in _LEFT_OUT]
    known = {(one.kind, one.step) for one in found}
    starts = any(kind == "start" for kind, _ in known)
    for broken in curves.breaks if not starts else ():
        step = curves.steps[broken.row]
        found.append(Happening(step, "start", "log", broken.kind, text("timeline.another_start", step=step)))
    if not any(kind == "eval" for kind, _ in known):
        steps, losses = curves.points("eval/loss")
        found += [
            Happening(s, "eval", "log", "evaluation", f"eval/loss {loss:.4g}")
            for s, loss in zip(steps, losses, strict=True)
        ]
    if not any(kind == "checkpoint" for kind, _ in known):
        found += [Happening(s, "checkpoint", "log", "checkpoint", str(path)) for s, path in curves.checkpoints.items()]
    told = {(event.get("evidence") or {}).get("step") for event in curves.events if event.get("kind") == "continuity"}
    findings = [one for one in findings if one.name != "resume_gap" or one.evidence.get("since") not in told]
    found += [
        Happening(one.step, "start", "log", "continuity", in_words(one))
        for one in continuity(curves)
        if one.step not in told and one.verdict != BROKEN  # that one is a finding
    ]
    said = {one.text for one in found}  # live, the same detectors have said it already
    found += [_of_finding(finding) for finding in findings if finding.text not in said]
    return sorted(_once(found), key=lambda one: (one.step, KINDS.index(one.kind)))


def _once(found: list[Happening]) -> list[Happening]:
    """An unplanned change of the rate is an event of its own and an alert: the alert is kept."""
    graver: dict[tuple[int, str], Happening] = {}
    for one in found:
        key = one.step, one.text or one.title
        if key not in graver or KINDS.index(one.kind) < KINDS.index(graver[key].kind):
            graver[key] = one
    return list(graver.values())


def _of_finding(finding: Finding) -> Happening:
    """From where it began to where it was over, or seen last."""
    since = finding.evidence.get("since")
    first = since if isinstance(since, int) and since <= finding.step else finding.step
    last = finding.until if finding.until is not None else finding.step
    return Happening(first, "finding", "diagnose", finding.name, finding.text, max(first, last), finding.evidence)


def _of_record(event: dict) -> Happening:
    kind, level = event.get("kind"), event.get("level")
    if level in ("error", "warn"):
        kind = level
    elif kind in ("start", "resume", "continuity", "end", "interrupted"):
        kind = "start"
    elif kind in ("lr_change", "control"):
        kind = "lr"
    elif kind == "diagnosis":
        kind = "finding"
    elif kind not in ("checkpoint", "eval"):
        kind = "other"
    title, words = str(event.get("title") or event.get("kind")), str(event.get("text") or "")
    return Happening(
        event.get("step", 0), kind, str(event.get("name")), title, words, evidence=event.get("evidence") or {}
    )
