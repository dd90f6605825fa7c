"""Numbers that do not fit their type: the loss scale, skipped steps, infinity before NaN."""

import math

from ... import texts
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import short
from .place import Place


def overflow(place: Place) -> Case:
    """fp16 gradients or activations went beyond 65,504."""
    case = Case("overflow", texts.text("causes.precision.next"))
    if place.events("loss scale collapses", before=20, after=5):
        case.supports(DECISIVE, texts.text("causes.precision.collapsed"))
    _scale(place, case)
    skipped = place.near("train/step_skipped", 3, 3)
    if any(value > 0 for value in skipped):
        case.supports(STRONG, texts.text("causes.precision.skipped"))
    _infinite(place, case)
    compute = precision_of(place)
    if compute == "fp16":
        case.supports(WEAK, texts.text("causes.precision.fp16"))
    elif compute is not None:
        weight = FAIR if any(not math.isfinite(value) for value in place.near("train/grad_norm", 2, 2)) else STRONG
        case.against(weight, texts.text("causes.precision.other", compute=compute))
    else:
        case.lacks(texts.text("causes.precision.lacks"))
    if not skipped and not place.curves.has("train/loss_scale") and compute == "fp16":
        case.lacks(texts.text("causes.precision.lacks_scale"))
    return case


def precision_of(place: Place) -> str | None:
    """fp16, bf16 or fp32, as far as it is known."""
    said = (place.curves.run.get("precision") or {}).get("compute")
    if said:
        return str(said)
    settings = place.curves.settings
    if not {"fp16", "bf16"} & settings.keys():
        return None
    return "fp16" if settings.get("fp16") is True else "bf16" if settings.get("bf16") is True else "fp32"


def _scale(place: Place, case: Case) -> None:
    scales = place.near("train/loss_scale", 4, 2)
    if len(scales) >= 2 and min(scales) < max(scales) and scales[-1] < scales[0]:
        halved = round(math.log2(max(scales) / max(min(scales), 1e-12)))
        text = texts.text("causes.precision.fell", before=short(max(scales)), after=short(min(scales)), halved=halved)
        case.supports(STRONG if halved >= 2 else FAIR, text)
    elif scales and len(set(scales)) == 1:
        case.against(FAIR, texts.text("causes.precision.stayed", scale=short(scales[0])))


def _infinite(place: Place, case: Case) -> None:
    """Infinity comes before NaN where a number grew too large; NaN without it has another source (0/0, bad input)."""
    for name in ("train/grad_norm", "train/loss"):
        near = place.near(name, 2, 3)
        infinite = next((i for i, value in enumerate(near) if math.isinf(value)), None)
        nan = next((i for i, value in enumerate(near) if math.isnan(value)), None)
        if infinite is not None and (nan is None or infinite <= nan):
            words = texts.text(f"causes.word.{name}")
            case.supports(FAIR, texts.text("causes.precision.infinite", words=words))
            return
