"""Memory that ran out: a batch larger than all before, memory that had grown, others on the card, or no room at all."""

from ... import texts
from .evidence import DECISIVE, STRONG, WEAK, Case
from .memory import growth
from .ordinary import short
from .place import Place

#: the longest sequence against the longest before: from here on it is another kind of batch
_MUCH, _MORE = 1.5, 1.1
_FIRST_STEPS = 2


def ran_out(place: Place) -> list[Case]:
    """The candidates: `special_batch`, `no_room`, and those of memory that grows."""
    return [_long_batch(place), _no_room(place), *growth(place)]


def _long_batch(place: Place) -> Case:
    """The batch that it happened with against the longest that went well."""
    case = Case("special_batch", texts.text("oom.next_batch"))
    longest, before = _longest(place), _before(place)
    if longest is None:
        case.lacks(texts.text("oom.lacks_shapes"))
    elif before is None:
        case.lacks(texts.text("oom.lacks_lengths"))
    else:
        words = {"length": longest, "before": int(before), "times": longest / before}
        if longest >= _MUCH * before:
            case.supports(DECISIVE, texts.text("oom.long_batch", **words))
        elif longest >= _MORE * before:
            case.supports(STRONG, texts.text("oom.long_batch", **words))
        else:
            case.against(STRONG, texts.text("oom.usual_batch", length=longest, before=int(before)))
    return case


def _no_room(place: Place) -> Case:
    """Not even an ordinary batch fits: it ends with the first steps."""
    case = Case("no_room", texts.text("oom.next_room"))
    step, longest, before = place.finding.step, _longest(place), _before(place)
    if step <= _FIRST_STEPS:
        case.supports(STRONG, texts.text("oom.at_once", step=step))
    elif longest is not None and before is not None and longest <= _MORE * before:
        case.supports(WEAK, texts.text("oom.usual_batch", length=longest, before=int(before)))
    else:
        case.against(STRONG, texts.text("oom.went_well", steps=step - 1))
    margins = place.values("system/margin_gib", range(len(place.curves)))
    if margins and min(margins) < 1 and step > _FIRST_STEPS:
        case.supports(STRONG, texts.text("oom.little_left", gib=short(min(margins))))
    return case


def _longest(place: Place) -> int | None:
    """Cells of the longest row of the batch, padding too."""
    longest = place.finding.evidence.get("longest_sequence")
    return longest if isinstance(longest, int) and longest > 0 else None


def _before(place: Place) -> float | None:
    """The longest row of all batches that went well."""
    step = place.finding.step
    rows = [row for row, at in enumerate(place.curves.steps) if at < step]
    lengths = place.values("data/max_length", rows)
    return max(lengths) if lengths else None
