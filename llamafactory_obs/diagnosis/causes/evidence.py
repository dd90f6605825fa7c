"""How evidence becomes a score.

A sentence of evidence has one of four weights. They are grades, not measured probabilities: the steps between them are
chosen so that one sentence of a grade outweighs two of the grade below (noisy-or, Pearl 1988: 1 - (1-a)(1-b)).
A sentence against a candidate takes its share off what speaks for it.
"""

from dataclasses import dataclass, field

from ...texts import text
from ...texts.findings import told
from ..result import Cause

DECISIVE = 0.9
"""The log names the cause itself: an event, or a number that can mean nothing else."""
STRONG = 0.6
"""Beyond everything this run had seen before, or an argument that leaves little else."""
FAIR = 0.35
"""Out of the ordinary for this run, or typical of the cause."""
WEAK = 0.15
"""Fits the cause as well as others."""
NOTED = 0.0
"""Worth knowing; it changes nothing."""

STANDS_OUT = 0.5
"""A candidate below this is no answer: one strong sentence or two fair ones are needed."""


@dataclass
class Case:
    """A candidate while the evidence is collected; see `Cause` for the fields' meaning."""

    name: str
    next: str = ""
    missing: list[str] = field(default_factory=list)
    _supports: list[tuple[float, str]] = field(default_factory=list)
    _against: list[tuple[float, str]] = field(default_factory=list)

    def supports(self, weight: float, sentence: str) -> None:
        self._supports.append((weight, sentence))

    def against(self, weight: float, sentence: str) -> None:
        self._against.append((weight, sentence))

    def lacks(self, what: str) -> None:
        """`what` was not logged and would have decided."""
        if what not in self.missing:
            self.missing.append(what)

    @property
    def score(self) -> float:
        doubt, kept = 1.0, 1.0
        for weight, _ in self._supports:
            doubt *= 1 - weight
        for weight, _ in self._against:
            kept *= 1 - weight
        return round((1 - doubt) * kept, 3)

    def cause(self) -> Cause:
        """The candidate, its weightiest sentences first."""
        supports, against = (
            [sentence for _, sentence in sorted(side, key=lambda item: -item[0])]
            for side in (self._supports, self._against)
        )
        return Cause(self.name, self.score, supports, against, list(self.missing), self.next)


def rank(cases: list[Case]) -> list[Cause]:
    """The candidates that anything speaks for, the likeliest first; `unknown` leads where none stands out."""
    named = sorted((case for case in cases if case.score > 0), key=lambda case: -case.score)
    found = [case.cause() for case in named]
    if named and named[0].score >= STANDS_OUT:
        return found
    missing = list(dict.fromkeys(what for case in [*named, *cases] for what in case.missing))
    missing.sort(key=lambda what: "run.json" in what)  # the batches say more than the size of the model
    best = named[0].score if named else 0.0
    weak = text("causes.unknown.best", name=named[0].name, best=best) if named else text("causes.unknown.nothing")
    unknown = Cause(
        "unknown",
        round(1 - best, 3),
        [text("causes.unknown.says", stands_out=STANDS_OUT, weak=weak)],
        [],
        missing,
        text("causes.unknown.log", what=text("causes.unknown.and").join(missing[:3]))
        if missing
        else text("causes.unknown.repeat"),
    )
    return [unknown, *found]


def quoted(event: dict) -> str:
    """What a recorded event says, as a sentence of evidence."""
    said = told(event["title"], event["step"], event["text"], event.get("evidence") or {})
    return text("causes.event", step=event["step"], said=said)
