"""What the judge says of one resume: facts, and the names of the sentences that tell them."""

import math
from dataclasses import dataclass, field

from ..texts import text

EXACT, NOISE, BROKEN = "continues exactly", "continues within noise", "does not continue"
FEW, NOTHING = "not enough rows yet", "nothing to compare"
#: verdict -> the name of its words
VERDICTS = {EXACT: "exact", NOISE: "noise", BROKEN: "broken", FEW: "few", NOTHING: "nothing"}

#: of a column. goes on: no step was made twice, and the rows after the resume follow those before it
EQUAL, CLOSE, GOES_ON, DIFFERS, UNKNOWN = "equal", "within noise", "goes on", "differs", "unknown"


@dataclass(frozen=True)
class Said:
    """A sentence of `texts/<language>/continuity.toml` with its numbers."""

    key: str
    values: dict = field(default_factory=dict)

    def words(self, lang: str | None = None) -> str:
        """In a language; None: the reader's."""
        values = self.values
        if "steps" in values:
            values = values | {"made": made_twice(values["steps"], values.get("row_steps", 1), lang)}
        return text(f"continuity.{self.key}", lang, **values)


def made_twice(rows: int, row_steps: int = 1, lang: str | None = None) -> str:
    """So many rows of so many steps each, in words."""
    key = ("made_one" if rows == 1 else "made") if row_steps == 1 else "made_row" if rows == 1 else "made_rows"
    return text(f"continuity.{key}", lang, steps=rows, row_steps=row_steps)


@dataclass(frozen=True)
class Lack:
    """A part of the training's state that a resume began anew.

    Attributes:
        part: optimizer | scheduler | scaler | rng | data_order.
        by: checkpoint (it does not hold it) | trainer (it began without it) | numbers (they are those of a start
            without it) | folder (the checkpoint does not hold it now, which may be since).
        why: one sentence, English where `by` is not numbers.
    """

    part: str
    by: str
    why: Said | str

    def words(self, lang: str | None = None) -> str:
        return self.why if isinstance(self.why, str) else self.why.words(lang)

    def as_dict(self) -> dict:
        return {"part": self.part, "by": self.by, "why": self.words("en")}


@dataclass(frozen=True)
class Column:
    """One column of a resume.

    Attributes:
        name: loss | learning_rate | gradient_norm | epoch | samples.
        status: equal | within noise | goes on | differs | unknown.
        told: its sentence.
        compared: steps that were made twice and have it both times; of these `unequal` differ in any bit.
        first: the first of those steps that differs; `largest`: the largest difference.
        numbers: what else the judgement rests on.
    """

    name: str
    status: str
    told: Said
    compared: int = 0
    unequal: int = 0
    first: int | None = None
    largest: float | None = None
    numbers: dict = field(default_factory=dict)

    def as_dict(self) -> dict:
        plain = {name: getattr(self, name) for name in ("status", "compared", "unequal", "first", "largest")}
        return _strict(plain | {"numbers": self.numbers, "text": self.told.words("en")})


@dataclass(frozen=True)
class Continuity:
    """The verdict on one resume.

    Attributes:
        step: of the first row after it. segment: which start of training it is, None where the log does not say.
        verdict: continues exactly | continues within noise | does not continue | not enough rows yet |
            nothing to compare.
        reasons: why it does not continue.
        columns: by name.
        not_restored: what began anew, each with what tells it.
        notes: worth knowing, and no reason.
        rows: rows after the resume that were looked at; `made_twice`: those among them that an earlier start had made.
        row_steps: optimizer steps of one row.
        faded: all that was wrong is a loss that has come back.
        run: how many other runs stand before it in the log.
    """

    step: int
    verdict: str
    reasons: list[Said] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    not_restored: list[Lack] = field(default_factory=list)
    notes: list[Said] = field(default_factory=list)
    rows: int = 0
    made_twice: int = 0
    row_steps: int = 1
    faded: bool = False
    segment: int | None = None
    run: int = 0

    def as_dict(self) -> dict:
        """For `--json` and for the record's event; English."""
        return {
            "step": self.step,
            "verdict": self.verdict,
            "reasons": [one.words("en") for one in self.reasons],
            "not_restored": [one.as_dict() for one in self.not_restored],
            "columns": {name: one.as_dict() for name, one in self.columns.items()},
            "notes": [one.words("en") for one in self.notes],
            "rows": self.rows,
            "made_twice": self.made_twice,
            "faded": self.faded,
        }


def _strict(value):
    """Strict JSON: a number that is not finite is its name."""
    if isinstance(value, dict):
        return {key: _strict(one) for key, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
