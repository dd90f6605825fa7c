"""What a drill found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...output import plain

#: verdicts and their exit codes
EXACTLY, WITHIN_NOISE, PARTS, NOT_JUDGED = (
    "continues exactly",
    "continues within noise",
    "does not continue",
    "not judged",
)
_EXIT = {EXACTLY: 0, WITHIN_NOISE: 0, PARTS: 1, NOT_JUDGED: 2}

#: of a measure
EQUAL, NOISE, DIFFERS, UNKNOWN = "equal", "noise", "differs", "unknown"


@dataclass(frozen=True)
class Measure:
    """One thing that was compared between the unbroken training and the resumed one.

    Attributes:
        name: for people, e.g. `loss`.
        of: what is counted: steps | tensors | values.
        status: equal (bit for bit) | noise (not more than two unbroken trainings differ) | differs | unknown.
        compared: how many.
        unequal: how many of them differ.
        largest: the largest absolute difference.
        floor_unequal, floor_largest: the same between the two unbroken trainings; None where not known.
        first: the first step at which it is beyond the noise; None for what has no steps.
        why: why it is unknown.
    """

    name: str
    of: str
    status: str
    compared: int = 0
    unequal: int = 0
    largest: float | None = 0.0
    floor_unequal: int | None = None
    floor_largest: float | None = None
    first: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Lost:
    """One part of the training's state that did not come through.

    Attributes:
        part: optimizer | scheduler | scaler | rng | data_order | weights | trainer_state | resume (it broke off).
        before: what the checkpoint or the configs said before the resume; empty where they said nothing.
        after: what the curves and the last checkpoint say; empty where they show nothing.
    """

    part: str
    before: str = ""
    after: str = ""


@dataclass
class Outcome:
    """Everything that the terminal, the report and `--json` show.

    Attributes:
        verdict: one of the four above.
        why: the reason in one line.
        config, folder, report: paths; `report` is None where there is none.
        steps, extra, killed_at: before and after the break; the step after which the training was killed.
        take_away: what was taken from the checkpoint on purpose; `taken`: its files.
        ranks: training processes.
        first: the first step at which the resumed training parts from the unbroken one; None where no step does.
        lost: what did not come through, by its evidence.
        measures: what was compared.
        tensors: `{"name", "elements", "unequal", "largest", "floor_largest"}` of weights that differ, the largest
            difference first.
        before_break: `Measure`s of the steps up to the break: two starts of one config, no resume in between.
        twice: the same of the steps that the broken training made and lost and the resumed one made again.
        curves: column -> `{"steps", "unbroken", "resumed", "again"}` over the steps after the break.
        settings: `{"setting", "drill", "run"}`: what decides how exact a repetition can be.
        limits: what the verdict does not cover.
        changed: key -> `{"from", "to"}` of the unbroken training against the config.
        notes: what a person should know.
        seconds: training -> seconds.
        failed: the training that broke off; `last_words`: of its log; `log`: the file.
    """

    verdict: str
    why: str
    config: Path
    folder: Path
    steps: int
    extra: int
    killed_at: int
    take_away: str | None = None
    taken: list[str] = field(default_factory=list)
    ranks: int = 1
    first: int | None = None
    lost: list[Lost] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    tensors: list[dict] = field(default_factory=list)
    before_break: list[Measure] = field(default_factory=list)
    twice: list[Measure] = field(default_factory=list)
    curves: dict[str, dict] = field(default_factory=dict)
    settings: list[dict] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    changed: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    last_words: list[str] = field(default_factory=list)
    log: Path | None = None
    report: Path | None = None

    @property
    def exit_code(self) -> int:
        return _EXIT[self.verdict]

    def as_dict(self, english: Callable[[str], str] = str) -> dict:
        """Plain values for JSON; a number that is not finite is written as its word.

        Args:
            english: what says a text in English, see `texts.remembering`.
        """
        data = plain({**vars(self), "exit_code": self.exit_code})
        return data | {name: _said(data[name], english) for name in _SENTENCES}


#: attributes with sentences for people in them
_SENTENCES = ("why", "lost", "measures", "settings", "limits", "notes")


def _said(value: object, english: Callable[[str], str]) -> object:
    if isinstance(value, dict):
        return {key: _said(one, english) for key, one in value.items()}
    if isinstance(value, list):
        return [_said(one, english) for one in value]
    return english(value) if isinstance(value, str) else value
