"""From the logged samples to rows: is each still the one that was trained on?"""

from dataclasses import dataclass, field

from ..samples.content import digest
from .collator import IGNORE
from .content import real_tokens
from .log import Logged, LoggedStep
from .training_set import TrainingSet

#: the ids and the labels are those that were trained on
EXACT = "exact"
#: the ids are; the labels were changed between the data set and the model, and the log has them
LABELS_CHANGED = "labels_changed"
#: the ids are; the labels differ, and the log does not have them
LABELS_UNKNOWN = "labels_unknown"
#: the row is there and holds something else
DATA_CHANGED = "data_changed"
#: there is no such row and no such content
NOT_FOUND = "not_found"
#: the row itself cannot be told: what is run is what was trained on
_THE_SAME = (EXACT, LABELS_CHANGED)


@dataclass
class Sample:
    """One sample of a rebuilt batch.

    Attributes:
        logged: as in the log.
        status: see above.
        rank, micro_batch, place: where in the step it stood.
        position: in the training set as it is now; another one than logged where the rows moved.
        row: the tokenized row there; None where none was found.
        ids, labels: over real tokens, as they are run; of a pair those of the chosen answer. Of a `data_changed` row
            those that it has now, for the eye only.
        altered: supervised labels that are not the token at their own position.
    """

    logged: Logged
    status: str
    rank: int
    micro_batch: int
    place: int
    position: int | None = None
    row: dict | None = None
    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    altered: int = 0

    @property
    def runs(self) -> bool:
        """Whether it takes part: only content that was trained on does, changed rows do not."""
        return self.status not in (DATA_CHANGED, NOT_FOUND)

    @property
    def same(self) -> bool:
        """Whether ids and labels are those that were trained on."""
        return self.status in _THE_SAME

    @property
    def changes_labels(self) -> bool:
        """Whether its labels are not those that the collator makes."""
        return self.status == LABELS_CHANGED

    @property
    def sources(self) -> list[tuple[str, int | None]]:
        """`(data set, row in its source)` of what is in it; its row in the training set where that is not on record."""
        return list(self.logged.sources or [("training", self.logged.row)])

    @property
    def name(self) -> str:
        """Its sources for people: `orders row 7`, several for a packed one."""
        return names_of(self.sources)


@dataclass
class Batch:
    """One rebuilt step: rank -> micro-batches -> samples."""

    step: int
    ranks: dict[int, list[list[Sample]]]

    @property
    def samples(self) -> list[Sample]:
        """All samples, in order."""
        return [sample for batches in self.ranks.values() for batch in batches for sample in batch]

    @property
    def same(self) -> bool:
        """Whether all of it is what was trained on."""
        return all(sample.same for sample in self.samples)

    @property
    def altered_share(self) -> float:
        """Supervised labels that are not the token at their own position, of all supervised ones."""
        supervised = sum(sum(label != IGNORE for label in sample.labels) for sample in self.samples if sample.runs)
        return sum(sample.altered for sample in self.samples if sample.runs) / max(supervised, 1)


def rebuild(step: LoggedStep, data: TrainingSet, collator) -> Batch:
    """Take the logged rows, and look the content of those that differ up in the whole training set."""
    ranks = {
        rank: [
            [_sample(logged, rank, number, place, data, collator) for place, logged in enumerate(batch)]
            for number, batch in enumerate(batches)
        ]
        for rank, batches in step.ranks.items()
    }
    return Batch(step.step, ranks)


def _sample(logged: Logged, rank: int, micro_batch: int, place: int, data: TrainingSet, collator) -> Sample:
    sample = Sample(logged, NOT_FOUND, rank, micro_batch, place)
    if logged.row is not None and logged.row < len(data.rows):
        _take(sample, logged.row, data, collator)
    if not sample.runs:
        elsewhere = data.find(logged.hash)
        if elsewhere is not None and elsewhere != logged.row:
            _take(sample, elsewhere, data, collator)
    if sample.status == LABELS_CHANGED:
        sample.labels = list(logged.labels)
    sample.altered = sum(a not in (IGNORE, b) for a, b in zip(sample.labels, sample.ids, strict=True))
    return sample


def _take(sample: Sample, position: int, data: TrainingSet, collator) -> None:
    """Try the row at a position; a pair must agree in both of its answers."""
    row = data.rows[position]
    sequences = sequences_of([row], data, collator)
    sample.position, sample.row = position, row
    sample.ids, sample.labels = sequences[0]
    wanted = [one for one in (sample.logged, sample.logged.rejected) if one is not None]
    pairs = list(zip(wanted, sequences, strict=False))
    if any(digest(ids) != one.hash for one, (ids, _) in pairs):
        sample.status = DATA_CHANGED
    elif all(digest(labels) == one.labels_hash for one, (_, labels) in pairs):
        sample.status = EXACT
    else:
        known = sample.logged.labels is not None and len(sample.logged.labels) == len(sample.ids)
        sample.status = LABELS_CHANGED if known else LABELS_UNKNOWN


def sequences_of(rows: list[dict], data: TrainingSet, collator) -> list[tuple[list[int], list[int]]]:
    """(ids, labels) over real tokens of each sequence that the collator makes: of pairs all chosen ones first."""
    inputs = collator([dict(row) for row in rows])
    real = real_tokens(inputs, data.tokenizer.pad_token_id)
    return [
        (ids[kept].tolist(), labels[kept].tolist())
        for ids, labels, kept in zip(inputs["input_ids"], inputs["labels"], real, strict=True)
    ]


def names_of(sources: list[tuple[str, int | None]], most: int = 8) -> str:
    """Rows for people, by data set, at most so many of each."""
    names: dict[str, set[int]] = {}
    for name, row in sources:
        names.setdefault(name, set()).update([] if row is None else [row])
    return "; ".join(f"{name} row{'s' * (len(rows) > 1)} {_listed(sorted(rows), most)}" for name, rows in names.items())


def _listed(rows: list[int], most: int) -> str:
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return (", ".join(map(str, rows[:most])) or "?") + more
