"""What two trainings recorded, step by step: loss, gradient norm, learning rate, position in the data, samples."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...record.reader import merge_steps, read_rows
from ...record.samples import sample_files
from ...record.schema import FOLDER, STEPS

#: columns that are compared as numbers, with their names for people
NUMBERS = {
    "train/loss": "loss",
    "train/grad_norm": "gradient norm",
    "train/lr": "learning rate",
    "train/epoch": "epoch",
}
SAMPLES = "samples"


@dataclass
class Curves:
    """One start of training.

    Attributes:
        columns: name -> step -> number, or for `SAMPLES` -> the hashes of the step's samples on all ranks.
    """

    columns: dict[str, dict[int, object]] = field(default_factory=dict)

    @property
    def steps(self) -> list[int]:
        """Steps with a loss."""
        return sorted(self.columns["train/loss"])


def read_curves(output_dir: Path, segment: int) -> Curves:
    """Read what one start of training (segment) wrote; columns are empty where it wrote nothing."""
    folder = output_dir / FOLDER
    rows = merge_steps([row for row in read_rows(folder / STEPS)[0] if row.get("segment", 0) == segment])
    columns: dict[str, dict[int, object]] = {
        name: {row["step"]: row[name] for row in rows if isinstance(row.get(name), (int, float))} for name in NUMBERS
    }
    samples: dict[int, dict[int, tuple]] = {}
    for rank, file in sample_files(folder).items():
        for row in read_rows(file)[0]:
            if row.get("segment", 0) == segment and "step" in row and not row.get("incomplete"):
                samples.setdefault(row["step"], {})[rank] = _identity(row.get("micro_batches") or [])
    columns[SAMPLES] = {step: tuple(sorted(by_rank.items())) for step, by_rank in samples.items()}
    return Curves(columns)


def _identity(micro_batches: list[list[dict]]) -> tuple:
    """What the model was given, in its order: hashes of ids and labels, of the other answer too."""
    return tuple(
        tuple((one.get("hash"), one.get("labels_hash"), (one.get("rejected") or {}).get("hash")) for one in batch)
        for batch in micro_batches
    )


@dataclass(frozen=True)
class Difference:
    """One column of two trainings.

    Attributes:
        compared: steps that both have.
        missing: steps that one of them lacks.
        unequal: steps at which they differ in any bit.
        by_step: step -> absolute difference where they differ; infinite where one is not finite, or for samples.
    """

    compared: int
    missing: int
    by_step: dict[int, float]

    @property
    def unequal(self) -> int:
        return len(self.by_step)

    @property
    def largest(self) -> float:
        return max(self.by_step.values(), default=0.0)

    @property
    def first(self) -> int | None:
        return min(self.by_step, default=None)

    @property
    def size(self) -> float:
        """Root mean square over the compared steps."""
        return math.sqrt(sum(one * one for one in self.by_step.values()) / self.compared) if self.compared else 0.0


def compare(one: Curves, other: Curves, name: str, steps: Iterable[int]) -> Difference:
    """Compare a column over some steps, bit for bit (the record holds each double as it was)."""
    a, b = one.columns.get(name, {}), other.columns.get(name, {})
    steps = list(steps)
    both = [step for step in steps if step in a and step in b]
    by_step = {step: _distance(a[step], b[step]) for step in both if not _equal(a[step], b[step])}
    return Difference(len(both), len(steps) - len(both), by_step)


def _equal(a: object, b: object) -> bool:
    return a == b or (a != a and b != b)  # NaN


def _distance(a: object, b: object) -> float:
    if isinstance(a, tuple):
        return math.inf
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf
