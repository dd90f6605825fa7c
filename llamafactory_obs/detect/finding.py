"""The one result type that every detector returns."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["info", "warn", "error"]
Action = Literal["kill", "keep", "none"]


@dataclass(frozen=True)
class Finding:
    """What a detector has seen at one optimizer step.

    The fields are those of an event in the run record and of a finding of `diagnose`: a caller copies them as they are.

    name      in words: "spike", "nan", "inf", "stalled", "growth" ...
    level     "info" (worth knowing), "warn" (look at it), "error" (act)
    step      the Trainer's global step at which it was seen
    text      what happened, since when, and the one thing to do now
    evidence  the numbers it rests on; plain JSON values, a non-finite number is the word "nan", "inf" or "-inf"
    action    "kill" (the run is lost), "keep" (go on and watch), "none" (nothing to do)
    suggest   YAML keys to change, ready to be merged into a config; empty if there is nothing certain to suggest
    limits    what the finding may not be taken to mean
    until     the last step it holds for; None while it goes on, or where it is one step
    confidence  0 to 1, how sure the detector is; None where it does not say
    """

    name: str
    level: Level
    step: int
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    action: Action = "none"
    suggest: dict[str, Any] = field(default_factory=dict)
    limits: str = ""
    until: int | None = None
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields as a new dictionary; changing it does not change the finding."""
        return asdict(self)
