"""What a training log holds, whatever wrote it: columns over rows, with the names of our own record."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .resumed import Resumed

Source = Literal["obs", "trainer_log", "trainer_state", "logging_jsonl", "console"]
Kind = Literal["sft", "preference", "rl", "not_a_training_log"]


class Column:
    """One number per row. A row without the number is missing (None): that is neither 0 nor NaN.

    Attributes:
        values: float64; what stands there for a missing row means nothing.
        present: 1 where the row has the number, else 0. Both can be viewed by `numpy.frombuffer` without a copy.
    """

    __slots__ = ("present", "values")

    def __init__(self, rows: int = 0):
        self.values = array("d", bytes(8 * rows))
        self.present = bytearray(rows)

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, row: int) -> float | None:
        return self.values[row] if self.present[row] else None

    def __setitem__(self, row: int, value: float | None) -> None:
        self.values[row], self.present[row] = (0.0, 0) if value is None else (value, 1)

    def __iter__(self) -> Iterator[float | None]:
        return (value if there else None for value, there in zip(self.values, self.present, strict=True))

    def grow(self, rows: int) -> None:
        """Add missing rows up to so many."""
        lacking = rows - len(self.present)
        if lacking > 0:
            self.values.frombytes(bytes(8 * lacking))
            self.present.extend(bytes(lacking))

    def taken(self, runs: list[tuple[int, int]]) -> "Column":
        """The rows of these ranges (first, end), one after the other."""
        column = Column()
        for first, end in runs:
            column.values.extend(self.values[first:end])
            column.present.extend(self.present[first:end])
        return column

    def append(self, value: float | None) -> None:
        self.values.append(0.0 if value is None else value)
        self.present.append(value is not None)


@dataclass
class Break:
    """A place where the log goes on from another start of training.

    row       the first row of the new start
    kind      "resume" (the step goes on, or falls back to a checkpoint), "restart" (another run in the same log)
    evidence  why it is held for one: the step, epoch, learning rate before and after
    """

    row: int
    kind: Literal["resume", "restart"]
    evidence: dict = field(default_factory=dict)


@dataclass
class Curves:
    """One log. Rows are in the order of training, one row per step of a run; the newest start of a step wins.

    Attributes:
        path: the file or folder it was read from.
        source: what wrote it.
        kind: `sft` also stands for pre-training; `preference` for DPO, KTO, ORPO, SimPO and reward models;
            `rl` for PPO, GRPO and the like, whose loss says nothing.
        steps: the Trainer's global step of each row, int64.
        columns: name -> Column of the same length. The names are those of docs/keys.md: `train/loss`, `train/lr`,
            `train/grad_norm`, `train/epoch`, `eval/loss`, `time/step_s`, `system/tokens_per_sec` ... In logs without
            `time/step_s` there are also `time/elapsed_s` (seconds since the log began) and `time/per_step_s` (wall
            time of one optimizer step, pauses included; only in rows over which the clock is fine enough: the mean
            since the row before that has it).
            Keys that our record has no name for keep their own, e.g. `rewards/margins`, `kl`.
        breaks: where another start of training begins.
        overlaps: (step, loss before, loss after) of steps that stood in the log twice.
        resumes: each resume with the rows around it; also those whose rows a later resume has replaced.
        max_steps: what the run was going to do, None where unknown.
        logging_steps: optimizer steps per row (the loss is their mean, the gradient norm that of the last one).
        events: of our record, else empty.
        probes: rows of `probes.jsonl`, else empty.
        run: `run.json`, else empty.
        settings: training arguments that are known: from `run.json`, from a YAML or `training_args` beside the log.
        checkpoints: step -> path of the `checkpoint-N` folders beside the log that exist now.
        notes: oddities met while reading, one line each ("2 torn lines skipped", "numbers written as text").
    """

    path: Path
    source: Source
    kind: Kind
    steps: array = field(default_factory=lambda: array("q"))
    columns: dict[str, Column] = field(default_factory=dict)
    breaks: list[Break] = field(default_factory=list)
    overlaps: list[tuple[int, float, float]] = field(default_factory=list)
    resumes: list[Resumed] = field(default_factory=list)
    max_steps: int | None = None
    logging_steps: int = 1
    events: list[dict] = field(default_factory=list)
    probes: list[dict] = field(default_factory=list)
    run: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    checkpoints: dict[int, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def has(self, name: str) -> bool:
        """Does any row have this number?"""
        return name in self.columns and any(self.columns[name].present)

    def points(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of the rows that have this number, in the order of training."""
        column = self.columns.get(name)
        if column is None:
            return [], []
        there = [row for row, present in enumerate(column.present) if present]
        return [self.steps[row] for row in there], [column.values[row] for row in there]
