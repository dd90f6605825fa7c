"""What the pipeline gave: data sets, splits with the figures of their rows, tokenizer and template."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..run_config import Arguments
from .segments import COLUMNS, Rules


class CannotAlign(Exception):
    """LlamaFactory raised while it read the columns and roles of a data set."""

    def __init__(self, source: "Source", error: Exception):
        super().__init__(str(error))
        self.source, self.why = source, " ".join(f"{type(error).__name__}: {error}".split())[:300]


@dataclass
class Source:
    """One data set before LlamaFactory aligned it.

    Attributes:
        name: as in `dataset_info.json`.
        attributes: LlamaFactory's `DatasetAttr` (columns and tags).
        rows: `datasets` object of the raw rows.
        numbers: the source row of each of its rows, None for a stream.
    """

    name: str
    attributes: object
    rows: object
    numbers: list[int] | None = None

    def raw(self, row: int) -> dict | None:
        """A row of the source by its number; None for a stream."""
        if not hasattr(self.rows, "__len__"):
            return None
        return self.rows[row if self.numbers is None else self._positions[row]]

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {row: position for position, row in enumerate(self.numbers or [])}

    def first(self) -> dict:
        """The first row, {} where there is none."""
        return next(iter(self.rows), {})


@dataclass
class Split:
    """The figures of one split.

    Attributes:
        name: train | eval.
        dataset: (rows,) numbers into `Collected.sources`.
        row: (rows,) row numbers in the source.
        figures: (rows, COLUMNS) int64.
        skipped: why nothing was counted, else "".
    """

    name: str
    dataset: np.ndarray
    row: np.ndarray
    figures: np.ndarray
    skipped: str = ""
    observer: object = None
    rows: object = None  # the aligned rows: indexable by position

    def view(self, position: int) -> tuple[list, list, list]:
        """Token ids, labels and segments of the row at a position; empty lists where there are none to show."""
        try:
            example = self.rows[int(position)]
        except (KeyError, TypeError):
            return [], [], []
        return self.observer.view(example)


@dataclass
class Collected:
    """What the pipeline gave.

    Attributes:
        arguments: LlamaFactory's.
        sources: the data sets, in the order of their numbers.
        splits: train and eval.
        tokenizer: as in training, special tokens of the template added.
        original: the tokenizer before the template changed it.
        processor: of a multimodal model, else None.
        template: LlamaFactory's template.
        vocabulary: rows of the model's embedding, None where its config cannot be read.
        rules: of the config.
        tokenized: rows came from `tokenized_path`: only tokens and labels are known.
    """

    arguments: Arguments
    tokenizer: object
    original: object
    processor: object
    template: object
    vocabulary: int | None
    rules: Rules
    sources: list[Source] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    tokenized: bool = False


@dataclass
class _Rows:
    """Rows of several data sets under one numbering: `(first position, rows)`."""

    parts: list[tuple[int, object]]

    def __getitem__(self, position: int) -> dict:
        first, rows = max((part for part in self.parts if part[0] <= position), key=lambda part: part[0])
        return rows[position - first]


def empty(split: str, why: str) -> Split:
    """A split without rows; `why` nothing was counted, "" where there were none."""
    nothing = np.zeros(0, dtype=np.int64)
    return Split(split, nothing, nothing, np.zeros((0, len(COLUMNS)), dtype=np.int64), why)


def join(split: Split, more: Split) -> None:
    """Add the rows of another evaluation set to a split."""
    if not isinstance(split.rows, _Rows):
        split.rows = _Rows([(0, split.rows)])
    split.rows.parts.append((len(split.row), more.rows))
    for name in ("dataset", "row", "figures"):
        setattr(split, name, np.concatenate([getattr(split, name), getattr(more, name)]))
