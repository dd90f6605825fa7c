"""The worst rows first: which rows a person should look at, and each as stretches of text."""

from dataclasses import dataclass

import numpy as np

from ... import texts
from .collected import Collected, Split
from .segments import IGNORE
from .share import column, shares

#: figure -> weight; a row's badness is the sum, so that kinds do not hide each other. The words stand in the texts.
_FAULTS = {
    "dropped": 1e9,
    "outside": 1e8,
    "missing": 1e6,
    "altered": 1e6,
    "stray": 1e5,
    "calls_cut": 1e4,
    "beheaded": 1e4,
    "prompts_cut": 1e3,
    "answers_cut": 1e3,
    "empty": 1e3,
}


@dataclass(frozen=True)
class Piece:
    """Neighbouring tokens of one role that are all in the loss, or all out of it; `wrong`: they should not be so."""

    role: str
    text: str
    tokens: int
    in_loss: bool
    wrong: bool


@dataclass(frozen=True)
class Row:
    """One row as a person reads it.

    Attributes:
        split, dataset, number: where it comes from; `number` counts from 0 in the source.
        faults: what is wrong with it, empty for a row that is only extreme.
        share: of its tokens in the loss; None where it is dropped.
        tokens: of the row.
        pieces: its text in order; empty where it could not be shown.
    """

    split: str
    dataset: str
    number: int
    faults: list[str]
    share: float | None
    tokens: int
    pieces: list[Piece]

    def as_dict(self) -> dict:
        """Without the text, for `--json`."""
        return {k: getattr(self, k) for k in ("split", "dataset", "number", "faults", "share", "tokens")}


def worst_rows(collected: Collected, count: int) -> list[Row]:
    """The `count` worst rows over all splits: faults by weight, then the shares farthest from the median."""
    ranked = []
    for split in collected.splits:
        if not len(split.row):
            continue
        badness = sum(np.minimum(column(split.figures, name), 9) * weight for name, weight in _FAULTS.items())
        nothing = (column(split.figures, "learnable") == 0) & (column(split.figures, "dropped") == 0)
        badness = badness + nothing * 1e7
        share = shares(split.figures)
        middle = np.nanmedian(share) if np.isfinite(share).any() else 0.0
        badness = badness + np.nan_to_num(np.abs(share - middle))
        for position in np.argsort(-badness, kind="stable")[:count]:
            ranked.append((float(badness[position]), split, int(position)))
    ranked.sort(key=lambda one: -one[0])
    return [_row(collected, split, position) for _, split, position in ranked[:count]]


def _row(collected: Collected, split: Split, position: int) -> Row:
    figures = split.figures[position : position + 1]
    values = {name: int(column(figures, name)[0]) for name in _FAULTS}
    faults = [texts.text(f"mask.fault.{name}", count=values[name]) for name in _FAULTS if values[name]]
    if not values["dropped"] and not column(figures, "learnable")[0]:
        faults.insert(0, texts.text("mask.fault.nothing"))
    source = collected.sources[int(split.dataset[position])]
    number, tokens = int(split.row[position]), int(column(figures, "length")[0])
    share = float(shares(figures)[0]) if tokens else None
    pieces = _raw(source.raw(number)) if values["dropped"] else _pieces(collected.tokenizer, split, position)
    return Row(split.name, source.name, number, faults, share, tokens, pieces)


def _raw(row: dict | None) -> list[Piece]:
    """A dropped row has no tokens: its content as it stands in the source."""
    return [] if row is None else [Piece("dropped", str(row)[:4000], 0, False, True)]


def _pieces(tokenizer, split: Split, position: int) -> list[Piece]:
    ids, labels, segments = split.view(position)
    pieces = []
    for segment in segments:
        start = segment.start
        while start < segment.stop:
            inside, stop = labels[start] != IGNORE, start + 1
            while stop < segment.stop and (labels[stop] != IGNORE) == inside:
                stop += 1
            text = tokenizer.decode(
                [token for token in ids[start:stop] if token is not None], skip_special_tokens=False
            )
            pieces.append(Piece(segment.role, text, stop - start, inside, inside != segment.due))
            start = stop
    return pieces
