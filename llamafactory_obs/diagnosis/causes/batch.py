"""A batch that is unlike the run's other batches."""

from ... import texts
from .evidence import DECISIVE, FAIR, NOTED, STRONG, WEAK, Case
from .ordinary import short
from .place import Place
from .sampled import about_samples

#: column -> does a high value count, does a low one; what it is in words stands in the texts under its name
_COLUMNS = {
    "data/max_length": (True, False),
    "data/tokens": (True, False),
    "data/supervised_ratio": (True, True),
    "data/min_supervised_ratio": (False, True),
    "data/supervised_tokens": (True, True),
    "data/padding_ratio": (True, False),
    "data/truncated_ratio": (True, False),
    "data/fully_masked": (True, False),
}


def special_batch(place: Place) -> Case:
    """The batch: its labels, lengths, mask against all batches before; and whether the loss came back at once."""
    case = Case("special_batch", texts.text("causes.replay", dir=place.dir, step=place.step))
    moved = place.at("data/labels_moved")
    if moved:
        case.supports(DECISIVE, texts.text("causes.labels_moved", moved=moved, step=place.step))
    elif moved is not None:
        case.against(NOTED, texts.text("causes.labels_in_place"))
    stands_out = about_columns(place, case)
    about_samples(place, case, other_labels=bool(moved))
    _how_it_went_on(place, case, stands_out or bool(moved))
    if not any(place.curves.has(name) for name in _COLUMNS):
        case.lacks(texts.text("causes.lacks.label_mask"))
    return case


def about_columns(place: Place, case: Case) -> bool:
    """The batch's columns. They hang together, so the most telling one counts fully and the others little.

    Returns:
        Does any of them stand out?
    """
    found, seen = [], False
    for name, (high, low) in _COLUMNS.items():
        past, value = place.past(name), place.at(name)
        if past is None or value is None:
            continue
        seen = True
        if name == "data/supervised_tokens" and value == 0 and min(past.values) > 0:
            found.append((DECISIVE, texts.text("causes.batch.no_label")))
            continue
        weight = past.weight(value, high=high, low=low)
        if weight:
            words = texts.text(f"causes.column.{name}")
            text = texts.text(
                "causes.batch.past", words=words, value=short(value), count=len(past.values), median=short(past.median)
            )
            text += texts.text(
                "causes.batch.range", low=short(min(past.values)), high=short(max(past.values)), z=past.z(value)
            )
            found.append((weight, text))
    for place_of, (weight, text) in enumerate(sorted(found, key=lambda item: -item[0])):
        case.supports(weight if place_of == 0 else min(weight, WEAK), text[0].upper() + text[1:])
    if seen and not found:  # a batch can be bad in what it says
        case.against(WEAK, texts.text("causes.batch.ordinary", step=place.step))
    samples, past = place.at("data/samples"), place.past("data/samples")
    if past is not None and samples is not None and samples <= 0.75 * past.median:
        case.against(FAIR, texts.text("causes.batch.smaller", samples=short(samples), usual=short(past.median)))
    return bool(found)


def _how_it_went_on(place: Place, case: Case, stands_out: bool) -> None:
    """The loss of a step is taken with the weights before its update.

    When it is up on one step alone, those weights gave an ordinary loss on the next batch (but for the one update
    between): what was out of order came with the batch. A long rise can be the damage that one batch did.
    """
    if place.curves.logging_steps != 1:
        case.lacks(texts.text("causes.lacks.logging_steps"))
        return
    rows = len(place.raised)
    if rows >= 8:
        case.against(WEAK if stands_out else FAIR, texts.text("causes.batch.many_rows", rows=rows))
    elif rows == 1 and place.came_back and place.series == "train/loss":
        text = texts.text("causes.batch.one_step", step=place.step)
        case.supports(STRONG, text + texts.text("causes.batch.with_the_batch"))
    elif rows == 1 and place.came_back:
        case.supports(FAIR, texts.text("causes.batch.norm_one_step", step=place.step))
