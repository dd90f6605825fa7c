"""What a drill of incidents found."""

from dataclasses import dataclass, field
from pathlib import Path

from ...output import plain
from .blind import Said
from .score import Score

#: of one incident: judged right, judged wrong; it did not happen, or left no record; the config has no such incident
RIGHT, WRONG, NOT_MADE, UNFIT = "right", "wrong", "not made", "does not apply"


@dataclass
class Made:
    """One incident, or the healthy twin.

    Attributes:
        name: of the incident, or `healthy`.
        training: the name of its folder, config and log in the drill's folder.
        onset: the step at which it begins; None for the healthy twin.
        status: one of the four above.
        why: the reason where it is not right, as (text, values).
        facts: what the fault said of itself.
        said: what `diagnose` said, in English; None where there was no record.
        spoken: the same in the language of the person.
        score: None for the healthy twin, and where there was no record.
        timeline: lines of it.
        command: `llamafactory-obs diagnose ...` to see it again.
        exit_code, seconds: of the training; `last_words`: of its log where it failed.
    """

    name: str
    training: str
    onset: int | None = None
    status: str = NOT_MADE
    why: tuple[str, dict] | None = None
    facts: dict = field(default_factory=dict)
    said: Said | None = None
    spoken: Said | None = None
    score: Score | None = None
    timeline: list[str] = field(default_factory=list)
    exit_code: int | None = None
    seconds: float = 0.0
    last_words: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """Everything that the terminal, the report and `--json` show.

    Attributes:
        name: of the drill: an incident's, or `all`.
        config, folder, report: paths; `report` is None where there is none.
        steps, at: of each training; the step of the incidents.
        ranks: training processes.
        healthy: the twin.
        incidents: the others, in their order.
        listed: the names in the config's `callbacks:`.
        changed: key -> `{"from", "to"}` of the trainings against the config.
        notes: what a person should know, as (text, values).
        seconds: of the whole drill.
    """

    name: str
    config: Path
    folder: Path
    steps: int
    at: int
    ranks: int
    healthy: Made
    incidents: list[Made] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    changed: dict = field(default_factory=dict)
    notes: list[tuple[str, dict]] = field(default_factory=list)
    seconds: float = 0.0
    report: Path | None = None

    @property
    def judged(self) -> list[Made]:
        """The incidents that happened."""
        return [one for one in self.incidents if one.status in (RIGHT, WRONG)]

    @property
    def right(self) -> list[Made]:
        return [one for one in self.incidents if one.status == RIGHT]

    @property
    def exit_code(self) -> int:
        """0 all is right; 1 a cause was wrong, or the healthy twin was flagged; 2 something could not be judged."""
        if self.healthy.status == WRONG or any(one.status == WRONG for one in self.incidents):
            return 1
        made = [one for one in self.incidents if one.status != UNFIT]
        return 0 if self.healthy.status == RIGHT and made and all(one.status == RIGHT for one in made) else 2

    def as_dict(self, text) -> dict:
        """Plain values for JSON; a number that is not finite is written as its word.

        Args:
            text: (name, values) of a text -> the text in English.
        """
        about = {key: value for key, value in vars(self).items() if key not in ("healthy", "incidents", "notes")}
        about |= {"exit_code": self.exit_code, "notes": [text(note) for note in self.notes]}
        about |= {"healthy": _as_dict(self.healthy, text), "incidents": [_as_dict(one, text) for one in self.incidents]}
        return plain(about)


def _as_dict(made: Made, text) -> dict:
    about = {key: value for key, value in vars(made).items() if key not in ("spoken", "timeline", "said", "score")}
    about["why"] = text(made.why) if made.why else ""
    about["score"] = None if made.score is None else {**vars(made.score), "right": made.score.right}
    if made.said is not None:
        names = ("steps", "verdict", "action", "headline", "finding", "since", "seen", "causes", "also", "alerts")
        about["said"] = {name: getattr(made.said, name) for name in names}
    return about
