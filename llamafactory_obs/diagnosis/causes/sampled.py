"""What the audit log of batches (`samples.jsonl`) tells about the batch of one step."""

from collections import Counter

from ... import texts
from ...record.samples import read_samples, sample_files
from .evidence import FAIR, STRONG, Case
from .ordinary import short
from .place import Place

_MOST_BYTES = 256 << 20


def about_samples(place: Place, case: Case, other_labels: bool = False) -> None:
    """The same rows at other steps, and the data sets that the batch is made of.

    Args:
        other_labels: here the rows had other labels, so their loss at other steps says nothing.
    """
    batches = _batches(place)
    here = batches.get(place.step) if batches else None
    if not here:
        case.lacks(texts.text("causes.sampled.lacks"))
        return
    if not other_labels:
        _seen_elsewhere(place, case, batches, here)
    _data_sets(place, case, batches, here)
    names = [f"{source[0]}:{source[1]}" for sample in here for source in sample.get("sources") or [] if source]
    case.next += texts.text("causes.sampled.rows", rows=", ".join(names[:6])) if names else ""


def _batches(place: Place) -> dict[int, list[dict]]:
    """step -> its samples on all ranks."""
    folder = place.record
    files = sample_files(folder) if folder is not None else {}
    if not files or sum(file.stat().st_size for file in files.values()) > _MOST_BYTES:
        return {}
    return {
        step: [sample for micro_batches in ranks.values() for batch in micro_batches for sample in batch]
        for step, ranks in read_samples(folder).items()
    }


def _seen_elsewhere(place: Place, case: Case, batches: dict[int, list[dict]], here: list[dict]) -> None:
    """Steps that shared at least half of the batch's rows, and their loss."""
    rows = {sample["hash"] for sample in here if "hash" in sample}
    shared = [
        step
        for step, samples in batches.items()
        if step != place.step and 2 * len(rows & {sample.get("hash") for sample in samples}) >= len(rows) > 0
    ]
    losses = (
        {place.curves.steps[row]: place.at("train/loss", row) for row in range(len(place.curves))} if shared else {}
    )
    before, value, past = (
        [step for step in shared if step < place.step],
        place.at("train/loss"),
        place.past("train/loss"),
    )
    if before and losses.get(before[-1]) is not None:
        text = texts.text("causes.sampled.seen", step=before[-1], loss=short(losses[before[-1]]))
        case.against(FAIR, text)
    after = [step for step in shared if step > place.step and losses.get(step) is not None]
    if after and value is not None and past is not None:
        again = losses[after[0]]
        if again - past.median >= 0.5 * (value - past.median):
            case.supports(STRONG, texts.text("causes.sampled.again_up", step=after[0], loss=short(again)))
        else:
            case.against(FAIR, texts.text("causes.sampled.again_fine", step=after[0], loss=short(again)))


def _data_sets(place: Place, case: Case, batches: dict[int, list[dict]], here: list[dict]) -> None:
    """A batch mostly of one data set that is rare in the run."""
    of_batch = _count(here)
    name, count = of_batch.most_common(1)[0] if of_batch else (None, 0)
    others = _count([sample for step, samples in batches.items() if step < place.step for sample in samples])
    total = sum(others.values())
    if name is None or total < 50 or count < max(2, 0.75 * sum(of_batch.values())):
        return
    share = others[name] / total
    if share < 0.1:
        text = texts.text("causes.sampled.data_set", count=count, of=sum(of_batch.values()), name=name)
        case.supports(FAIR, texts.text("causes.sampled.rare", text=text, share=share))


def _count(samples: list[dict]) -> Counter:
    return Counter(source[0] for sample in samples for source in sample.get("sources") or [] if source)
