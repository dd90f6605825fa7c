"""What `diagnose` says of a training: from its record alone, as the verb does, and without knowing what was planted."""

from dataclasses import dataclass, field
from pathlib import Path

from ...diagnosis.judge import judge
from ...diagnosis.result import Cause, Diagnosis
from ...diagnosis.verdict import speaks
from ...errors import ConfigError
from ...logs.curves import Curves
from ...logs.read import read

#: events that are no alert: the end of a run, and what a run says about itself
_NO_ALERT = ("crash", "interrupted", "diagnosis", "callback_off", "untrusted_loss")


@dataclass(frozen=True)
class Said:
    """The answer.

    Attributes:
        steps: that were recorded.
        verdict, action, headline: see `Diagnosis`.
        finding: the first one's name; None where there is none that speaks.
        since, seen: where it began; where it was sure.
        text: the finding's own.
        causes: its candidates, the likeliest first.
        also: (name, step) of the other findings that are a warning or an error.
        alerts: `{"name", "title", "level", "step"}` that were raised while it trained, in their order.
    """

    steps: int
    verdict: str
    action: str
    headline: str
    finding: str | None = None
    since: int | None = None
    seen: int | None = None
    text: str = ""
    evidence: dict = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    also: list[tuple[str, int]] = field(default_factory=list)
    alerts: list[dict] = field(default_factory=list)

    @property
    def cause(self) -> str | None:
        """The name of the first cause."""
        return self.causes[0].name if self.causes else None

    def first_alert(self, onset: int) -> dict | None:
        """The first alert from a step on."""
        return next((one for one in self.alerts if one["step"] >= onset), None)


def diagnose(output_dir: Path) -> tuple[Said, Curves, Diagnosis] | None:
    """Read and judge the record of one training; None where there is nothing to judge."""
    try:
        curves = read(output_dir)
    except ConfigError:
        return None
    if not len(curves):
        return None
    diagnosis = judge(curves)
    return said(curves, diagnosis), curves, diagnosis


def said(curves: Curves, diagnosis: Diagnosis) -> Said:
    """The answer, short."""
    alerts = [
        {"step": one.get("step", 0), "level": one["level"]} | {key: str(one.get(key)) for key in ("name", "title")}
        for one in curves.events
        if one.get("level") in ("warn", "error") and one.get("kind") not in _NO_ALERT
    ]
    findings = diagnosis.findings
    first = findings[0] if findings and diagnosis.verdict != "healthy" and speaks(findings[0]) else None
    also = [
        (one.name, one.evidence.get("since", one.step)) for one in findings if one is not first and one.level != "info"
    ]
    about = {"also": also, "alerts": sorted(alerts, key=lambda one: one["step"])}
    if first is not None:
        since = first.evidence.get("since", first.step)
        about |= {"finding": first.name, "since": since, "seen": first.evidence.get("seen_at", first.step)}
        about |= {"text": first.text, "evidence": first.evidence, "causes": diagnosis.causes.get(0, [])}
    return Said(max(curves.steps), diagnosis.verdict, diagnosis.action, diagnosis.headline, **about)
