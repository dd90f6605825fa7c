"""A batch that is unlike the run's other batches."""

from .evidence import DECISIVE, FAIR, NOTED, STRONG, WEAK, Case
from .ordinary import short
from .place import Place
from .sampled import about_samples

#: column -> what it is in words, does a high value count, does a low one
_COLUMNS = {
    "data/max_length": ("longest conversation, tokens", True, False),
    "data/tokens": ("tokens of the batch", True, False),
    "data/supervised_ratio": ("share of tokens with a label", True, True),
    "data/min_supervised_ratio": ("smallest share of labels in a conversation", False, True),
    "data/supervised_tokens": ("tokens with a label", True, True),
    "data/padding_ratio": ("share of padding", True, False),
    "data/truncated_ratio": ("share of truncated conversations", True, False),
    "data/fully_masked": ("conversations without any label", True, False),
}


def special_batch(place: Place) -> Case:
    """The batch: its labels, lengths, mask against all batches before; and whether the loss came back at once."""
    case = Case("special_batch", f"llamafactory-obs replay {place.dir} --step {place.step}")
    moved = place.at("data/labels_moved")
    if moved:
        case.supports(DECISIVE, f"{moved:.0f} labels of step {place.step} are not the token at their own position.")
    elif moved is not None:
        case.against(NOTED, "All labels are the tokens at their own positions.")
    stands_out = about_columns(place, case)
    about_samples(place, case)
    _how_it_went_on(place, case, stands_out or bool(moved))
    if not any(place.curves.has(name) for name in _COLUMNS):
        case.lacks("`label_mask` (lengths and share of labels of each batch)")
    return case


def about_columns(place: Place, case: Case) -> bool:
    """The batch's columns. They hang together, so the most telling one counts fully and the others little.

    Returns:
        Does any of them stand out?
    """
    found, seen = [], False
    for name, (words, high, low) in _COLUMNS.items():
        past, value = place.past(name), place.at(name)
        if past is None or value is None:
            continue
        seen = True
        if name == "data/supervised_tokens" and value == 0 and min(past.values) > 0:
            found.append((DECISIVE, "No token of the batch has a label: there is nothing to learn from, or 0/0."))
            continue
        weight = past.weight(value, high=high, low=low)
        if weight:
            text = (
                f"{words} {short(value)}: the {len(past.values)} batches before had {short(past.median)} at the median,"
            )
            text += f" {short(min(past.values))} to {short(max(past.values))} (robust z {past.z(value):.1f})."
            found.append((weight, text))
    for place_of, (weight, text) in enumerate(sorted(found, key=lambda item: -item[0])):
        case.supports(weight if place_of == 0 else min(weight, WEAK), text[0].upper() + text[1:])
    if seen and not found:  # a batch can be bad in what it says
        case.against(WEAK, f"Lengths, padding and mask of step {place.step} are ordinary for this run.")
    samples, past = place.at("data/samples"), place.past("data/samples")
    if past is not None and samples is not None and samples <= 0.75 * past.median:
        case.against(FAIR, f"The step held {short(samples)} samples, not {short(past.median)}: a smaller window.")
    return bool(found)


def _how_it_went_on(place: Place, case: Case, stands_out: bool) -> None:
    """The loss of a step is taken with the weights before its update.

    When it is up on one step alone, those weights gave an ordinary loss on the next batch (but for the one update
    between): what was out of order came with the batch. A long rise can be the damage that one batch did.
    """
    if place.curves.logging_steps != 1:
        case.lacks("`logging_steps: 1` (one row a step)")
        return
    rows = len(place.raised)
    if rows >= 8:
        case.against(WEAK if stands_out else FAIR, f"{rows} rows are raised: that is more than one batch.")
    elif rows == 1 and place.came_back and place.series == "train/loss":
        text = f"The loss was up on step {place.step} alone and back on the next: the weights were sound, so it came"
        case.supports(STRONG, text + " with the batch.")
    elif rows == 1 and place.came_back:
        case.supports(FAIR, f"The gradient norm was up on step {place.step} alone.")
