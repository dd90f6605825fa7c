"""What a comparison says. Runs are called A, B, C ... in the order they were named; A is the reference."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..detect.parting import Parting
from ..logs.curves import Curves
from ..summary import Price, RunSummary

Group = Literal["data", "template", "model", "config", "seed", "precision", "world", "code", "packages", "hardware"]
#: by how much such a difference usually moves a result
GROUPS: tuple[Group, ...] = (
    "data",
    "template",
    "model",
    "config",
    "seed",
    "precision",
    "world",
    "code",
    "packages",
    "hardware",
)
Relation = Literal["identical", "nondeterminism", "repeat", "seeds", "changed", "unknown"]
State = Literal["identical", "no_difference", "better", "fits_better", "mixed", "undecided", "not_comparable"]


@dataclass(frozen=True)
class Run:
    """One run: `id` is its letter, `name` the shortest end of its path that no other run has."""

    id: str
    name: str
    path: Path
    record: Path | None
    curves: Curves
    summary: RunSummary
    price: Price | None = None

    @property
    def cost(self) -> float | None:
        hours = self.summary.machine_hours
        return None if self.price is None or hours is None else hours * self.price.per_hour


@dataclass(frozen=True)
class Difference:
    """One fact that differs. note: "follows_seed" for rows that another seed has drawn from the same files."""

    group: Group
    key: str
    a: object
    b: object
    note: str = ""


@dataclass(frozen=True)
class Differences:
    """What differs between two runs.

    Attributes:
        rows: by importance. folded: keys that differ but do not reach the numbers: paths, ports, how often is logged.
        unknown: keys that are known of one run only.
        compared: "identity" (both have a `run.json`), "settings" (the training arguments alone), "nothing".
    """

    rows: list[Difference]
    folded: list[str]
    unknown: list[str]
    compared: Literal["identity", "settings", "nothing"]


@dataclass(frozen=True)
class Axis:
    """What two curves are held against each other by. Places are always given in steps of A.

    Attributes:
        name: "steps"; "samples" or "tokens" seen, where a step of B is another amount of data.
        why: code of the reason. factor: steps of A in one step of B (for tokens: their mean).
        low, high: the part that both runs have; None where they have none.
    """

    name: Literal["steps", "samples", "tokens"]
    why: str
    factor: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FirstDifference:
    """The first step at which a column is not bit-equal, and its two values."""

    column: str
    step: int
    a: float
    b: float


@dataclass(frozen=True)
class Exact:
    """Bit by bit, over the steps that both runs have.

    Attributes:
        columns: compared. steps: common. first: of each column that differs, the earliest first.
        last_equal: the last step before anything differs; None where the first common step differs.
        rounded: a log holds rounded numbers: equal means equal as logged.
    """

    columns: list[str]
    steps: int
    first: list[FirstDifference]
    last_equal: int | None
    rounded: bool

    @property
    def equal(self) -> bool:
        return bool(self.steps) and bool(self.columns) and not self.first


@dataclass(frozen=True)
class CurveParting:
    """Where one curve parts; `since`, `seen`, `until` are steps of A. seeds: nothing but the seed lies between them."""

    column: str
    parting: Parting
    since: int | None
    seen: int | None
    until: int | None
    seeds: bool = False

    def as_level(self) -> "CurveParting":
        """The same, where a difference is noise by definition: no parting, but a level."""
        if self.parting.kind not in ("parted", "apart_for_a_while"):
            return self
        return replace(self, parting=replace(self.parting, kind="level"), seeds=True)


@dataclass(frozen=True)
class Spread:
    """How far runs that differ from A in the seed alone lie from it, at most: |ln| of the end's training loss and of
    the best evaluation, None where that is not known. runs: their ids."""

    runs: list[str]
    train: float | None
    eval: float | None


@dataclass(frozen=True)
class LayerDifference:
    """One layer's measure, geometric mean over the common rows of the second half. error: half a 95 % interval of
    ln(ratio); beyond: outside of it and of 5 %."""

    measure: str
    name: str
    a: float
    b: float
    ratio: float
    error: float
    beyond: bool


@dataclass(frozen=True)
class Layers:
    """Per measure the median ratio of all layers, and the layers that differ most. rows: common steps used."""

    overall: dict[str, float]
    most: list[LayerDifference]
    rows: int


@dataclass(frozen=True)
class ProbePair:
    """One probe at the last probed checkpoint of each run: fixed, broke, same_pass, same_fail, only_a, only_b."""

    name: str
    a: bool | None
    b: bool | None
    word: str


@dataclass(frozen=True)
class Probes:
    """Side by side; a_at and b_at are the checkpoints. sign_p: exact two-sided sign test of fixed against broke."""

    suite: str
    a_at: str
    b_at: str
    rows: list[ProbePair]
    fixed: int
    broke: int
    sign_p: float


@dataclass(frozen=True)
class EvalPair:
    """Best evaluation loss of both. difference: ln b - ln a; band: what noise alone may do; same_set: None unknown.

    beyond: id of the run whose best evaluation lies behind the end of the other, else "". common: of their last
    evaluations that have a counterpart (step of A, loss of A, loss of B); None without one.
    """

    a: float
    b: float
    a_step: int
    b_step: int
    difference: float
    band: float
    same_set: bool | None
    beyond: str
    common: tuple[int, float, float] | None


@dataclass(frozen=True)
class Verdict:
    """One judgement. better: a run's id, None where none is. evidence: codes with their values, the heaviest first."""

    state: State
    better: str | None
    evidence: list[tuple[str, dict]]


@dataclass(frozen=True)
class Pair:
    """Run B against run A.

    Attributes:
        relation: "identical": equal identities, equal results; "nondeterminism": equal identities, other results;
            "seeds": they differ in the seed and what follows from it alone; "repeat": equal results of runs that
            differ, or whose identity is not known; "changed": something differs; "unknown": nothing to tell by.
        exact: None where the axis is not steps. curves: [] where the losses cannot be held against each other.
        reasons: likely reasons of a nondeterminism, codes with values.
        caveats: what the comparison may not be taken to mean, codes with values.
        run_name: what B changed, "" where nothing did.
    """

    a: str
    b: str
    differences: Differences
    axis: Axis
    exact: Exact | None
    curves: list[CurveParting]
    evaluation: EvalPair | None
    layers: Layers | None
    probes: Probes | None
    relation: Relation
    reasons: list[tuple[str, dict]]
    caveats: list[tuple[str, dict]]
    run_name: str
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """All runs, each against A, and the one verdict. order: ids as `--by` sorts them. spread: between seeds, where
    runs of A's config with other seeds are among them."""

    runs: list[Run]
    pairs: list[Pair]
    verdict: Verdict
    order: list[str]
    spread: Spread | None = None
