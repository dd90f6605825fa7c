"""What comes round with the epochs: the last, smaller accumulation window, and the border itself."""

import math

from ...texts import text
from ...texts.findings import told
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import short
from .place import Place


def accumulation_boundary(place: Place) -> Case:
    """The last step of an epoch has fewer micro-batches, or its loss is divided by another number."""
    case = Case(
        "accumulation_boundary",
        text("causes.borders.next_accumulation"),
    )
    accumulation = _setting(place, "gradient_accumulation_steps", "gradient_accumulation")
    for event in place.events("normaliser not constant", before=5, after=1)[:1]:
        case.supports(DECISIVE, told(event["title"], event["step"], event["text"], event.get("evidence") or {}))
    if accumulation == 1:
        case.against(STRONG, "gradient_accumulation_steps is 1: each step is one batch.")
    elif accumulation is None:
        case.lacks(text("causes.borders.no_accumulation"))
    smaller = False
    for name in ("data/samples", "data/cells"):
        past, value = place.past(name), place.at(name)
        if past is not None and value is not None and value <= 0.75 * past.median and past.share_below(value) <= 0.1:
            smaller = True
            case.supports(
                STRONG,
                text("causes.borders.held", count=short(value), what=name.partition("/")[2], usual=short(past.median)),
            )
            break
        if name == "data/samples" and past is not None and value is not None and value >= past.median:
            case.against(FAIR, text("causes.borders.as_many", count=short(value)))
    at_border, others = _border(place)
    if at_border is None:
        case.lacks(text("causes.borders.lacks_epoch"))
    elif at_border:
        case.supports(FAIR if smaller or (accumulation or 1) > 1 else WEAK, at_border)
        if others:
            case.supports(STRONG if (accumulation or 1) > 1 else FAIR, others)
    else:
        case.against(FAIR, text("causes.borders.within", epoch=place.at("train/epoch")))
    return case


def epoch_border(place: Place) -> Case:
    """A new epoch begins: the data is shuffled anew or comes in a fixed order, and the loss jumps with it."""
    case = Case("epoch_border", text("causes.borders.next_epoch"))
    at_border, others = _border(place)
    if at_border:
        case.supports(FAIR, at_border)
        if others:
            case.supports(STRONG, others)
        accumulation = _setting(place, "gradient_accumulation_steps", "gradient_accumulation")
        if accumulation and accumulation > 1:
            case.against(FAIR, text("causes.borders.smaller_window"))
    return case


def _border(place: Place) -> tuple[str | None, str]:
    """Is it at the end of an epoch? And were other ends of epochs raised as well? None where the epoch is unknown."""
    epoch, before = place.at("train/epoch"), place.at("train/epoch", place.row - 1)
    if epoch is None or before is None:
        return None, ""
    if not _crosses(before, epoch):
        return "", ""
    borders = []
    for row in range(1, len(place.curves)):
        a, b = place.at("train/epoch", row - 1), place.at("train/epoch", row)
        if a is not None and b is not None and _crosses(a, b):
            borders.append(row)
    series = place.series or "train/loss"
    ends = [row for row in borders if row - 1 not in borders and abs(row - place.row) > 2]  # with the row after it
    up = [place.curves.steps[row] for row in ends if _up(place, series, row) or _up(place, series, row + 1)]
    others = ""
    if ends and 2 * len(up) >= len(ends):
        others = text("causes.borders.others", up=len(up), ends=len(ends), steps=_listed(up))
    return text("causes.borders.at_the_end", before=before, epoch=epoch), others


def _crosses(before: float, epoch: float) -> bool:
    """Does a row end an epoch, or is it the first one after it? (From 0.99 to 1.0, or from 1.0 to 1.01.)"""
    width = max(epoch - before, 0.0)
    return math.floor(epoch + 1e-6) > math.floor(before + 1e-6) or 0 < epoch - math.floor(epoch + 1e-6) <= width + 1e-9


def _up(place: Place, series: str, row: int) -> bool:
    value = place.at(series, row)
    around = place.values(
        series, [r for r in range(row - 8, row + 9) if abs(r - row) > 1 and 0 <= r < len(place.curves)]
    )
    if value is None or not math.isfinite(value) or len(around) < 6:
        return False
    return value > max(around)


def _setting(place: Place, name: str, in_world: str) -> float | None:
    value = place.curves.settings.get(name, (place.curves.run.get("world") or {}).get(in_world))
    return value if isinstance(value, (int, float)) else None


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:4])) + (" ..." if len(steps) > 4 else "")
