"""Was it right? What `diagnose` said against what was planted."""

from dataclasses import dataclass

from .blind import Said
from .incidents import Incident


@dataclass(frozen=True)
class Score:
    """What was right.

    Attributes:
        verdict, cause, action: as wanted.
        onset: the beginning that was named is within the incident's steps of the real one.
        late: steps from the real beginning to the named one; None where none was named.
        told: steps from the real beginning to the first alert while it trained; None where there was none.
    """

    verdict: bool
    cause: bool
    action: bool
    onset: bool
    late: int | None
    told: int | None

    @property
    def right(self) -> bool:
        return self.verdict and self.cause and self.action and self.onset


def score(incident: Incident, said: Said, onset: int, causes: tuple[str, ...] = ()) -> Score:
    """Compare.

    Args:
        onset: the step at which the fault began.
        causes: what else is a right first cause here.
    """
    late = None if said.since is None else said.since - onset
    alert = said.first_alert(onset)
    return Score(
        verdict=said.verdict in incident.verdicts,
        cause=said.cause in (*incident.causes, *causes),
        action=said.action in incident.actions,
        onset=late is not None and abs(late) <= incident.within,
        late=late,
        told=None if alert is None else alert["step"] - onset,
    )


def is_quiet(said: Said) -> bool:
    """Is a healthy training left in peace: `healthy`, and nothing graver than a remark?

    What came and went without weight (a spike of the gradient norm in one step) is a warning of the record, no finding
    that speaks; an error is one in any case.
    """
    return said.verdict == "healthy" and said.action == "keep" and not any(e["level"] == "error" for e in said.alerts)
