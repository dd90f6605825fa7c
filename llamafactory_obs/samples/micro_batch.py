"""One micro-batch on the host, and its samples as the log has them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .content import IGNORE, digest, joined, keys


@dataclass(frozen=True)
class Sequence:
    """The real tokens of one sequence.

    Attributes:
        ids, labels: shape [tokens]; labels are `IGNORE` throughout where the batch has none.
    """

    ids: np.ndarray
    labels: np.ndarray

    @property
    def moved(self) -> int:
        """Supervised labels that are not the token at their own position."""
        return int(((self.labels != IGNORE) & (self.labels != self.ids)).sum())

    def described(self) -> dict:
        """Counts and digests, and the labels themselves where they are not the tokens."""
        supervised = self.labels != IGNORE
        found = {
            "tokens": len(self.ids),
            "supervised": int(np.count_nonzero(supervised)),
            "hash": digest(self.ids),
            "labels_hash": digest(self.labels),
        }
        if (supervised & (self.labels != self.ids)).any():
            found["labels"] = self.labels.tolist()
        return found


@dataclass(frozen=True)
class MicroBatch:
    """What a collator gave, on the host.

    Attributes:
        ids, real: shape [B, L]; of pairs first all chosen, then all rejected answers.
        labels: shape [B, L], None where the batch has none (of the ids' shape).
        pairs: whether it is made of pairs.
        kl: what `kto` compares with: ids, labels and real of its KL part.
    """

    ids: np.ndarray
    real: np.ndarray
    labels: np.ndarray | None
    pairs: bool = False
    kl: "MicroBatch | None" = None

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        parts = [self.ids.nbytes, self.real.nbytes, 0 if self.labels is None else self.labels.nbytes]
        return sum(parts) + (0 if self.kl is None else self.kl.nbytes)

    def sequences(self) -> list[Sequence]:
        """Each row's real tokens."""
        ids = self.ids[self.real].astype(np.int64)
        labels = np.full_like(ids, IGNORE) if self.labels is None else self.labels[self.real].astype(np.int64)
        ends = np.cumsum(self.real.sum(1)).tolist()
        return [Sequence(ids[a:b], labels[a:b]) for a, b in zip([0, *ends], ends, strict=False)]

    def samples(self) -> Iterator[tuple[dict, np.uint64, list[Sequence]]]:
        """Each sample as the log has it but for its row, the key to look that up with, and its sequences."""
        rows, found = self.sequences(), keys(self.ids[self.real], self.real.sum(1))
        if self.pairs:
            half = len(rows) // 2
            both = joined(found[:half], found[half:])
            for chosen, rejected, key in zip(rows[:half], rows[half:], both, strict=True):
                yield chosen.described() | {"rejected": rejected.described()}, key, [chosen, rejected]
            return
        others = self.kl.sequences() if self.kl is not None else [None] * len(rows)
        for row, other, key in zip(rows, others, found, strict=True):
            yield row.described() | ({} if other is None else {"kl": other.described()}), key, [row]
