"""A loss that does not fall: nothing is learnt, or nothing can be."""

from ... import texts
from .evidence import DECISIVE, FAIR, NOTED, STRONG, WEAK, Case
from .ordinary import middle, short
from .place import Place
from .rate import lr_too_high
from .updates import update_ratios


def nothing_trainable(place: Place) -> Case:
    """The adapter is not attached, or everything is frozen."""
    case = Case("nothing_trainable", texts.text("causes.flat.next_trainable"))
    model = place.curves.run.get("model") or {}
    parameters = model.get("parameters") or {}
    trainable, total = parameters.get("trainable"), parameters.get("total")
    if trainable is None:
        case.lacks(texts.text("causes.flat.lacks_trainable"))
    elif trainable == 0:
        case.supports(DECISIVE, texts.text("causes.flat.nothing"))
    elif total and trainable / total < 1e-5:
        case.supports(STRONG, texts.text("causes.flat.few", trainable=trainable, total=total))
    norms = place.values("train/grad_norm", range(len(place.curves)))
    reached = bool(norms) and max(norms) > 0
    if trainable and not (total and trainable / total < 1e-5):
        case.against(
            STRONG if reached or not norms else NOTED, texts.text("causes.flat.trainable", trainable=trainable)
        )
    if norms and not reached:
        case.supports(STRONG if _nothing_to_learn(place) else DECISIVE, texts.text("causes.flat.norm_zero"))
    elif norms:
        case.against(FAIR, texts.text("causes.flat.norm", norm=short(middle(norms))))
    else:
        case.lacks(texts.text("causes.flat.lacks_norm"))
    return case


def _nothing_to_learn(place: Place) -> bool:
    """Without labels there is no gradient either, whatever is trained."""
    shares, losses = (place.values(name, range(len(place.curves))) for name in ("data/supervised_ratio", "train/loss"))
    return bool(shares and middle(shares) < 0.01) or not any(losses)


def labels_masked(place: Place) -> Case:
    """Nearly all labels are masked, or they are not those of the text."""
    case = Case("labels", texts.text("causes.flat.next_mask"))
    shares = place.values("data/supervised_ratio", range(len(place.curves)))
    if not shares:
        case.lacks(texts.text("causes.flat.lacks_share"))
    elif middle(shares) < 0.01:
        case.supports(DECISIVE, texts.text("causes.flat.few_labels", share=middle(shares)))
    else:
        case.against(FAIR, texts.text("causes.flat.labels", share=middle(shares)))
    column = place.curves.columns.get("data/labels_moved")
    moved = [] if column is None else [value for value in column if value]
    if moved:
        case.supports(DECISIVE, texts.text("causes.flat.moved", rows=len(moved)))
    elif column is not None:
        case.against(WEAK, texts.text("causes.labels_in_place"))
    return case


def lr_too_small(place: Place) -> Case:
    """Updates too small to change anything: healthy ones are about 0.001 of the weights' norm (Karpathy)."""
    case = Case("lr_too_small", texts.text("causes.flat.next_rate"))
    rates = place.values("train/lr", range(len(place.curves)))
    if not rates:
        case.lacks(texts.text("causes.flat.lacks_rate"))
    elif max(rates) == 0:
        case.supports(DECISIVE, texts.text("causes.flat.rate_zero"))
    else:
        adapter = _is_adapter(place)
        low = 1e-5 if adapter else 5e-7
        if max(rates) <= low:
            kind = texts.text("causes.flat.adapter") if adapter else texts.text("causes.flat.full")
            case.supports(STRONG, texts.text("causes.flat.rate_low", rate=short(max(rates)), kind=kind))
        elif max(rates) > 10 * low:
            case.against(WEAK, texts.text("causes.flat.rate", rate=short(max(rates))))
    updates = [ratio for _, ratio in update_ratios(place)]
    if updates:
        if middle(updates) < 1e-5:
            case.supports(STRONG, texts.text("causes.flat.update", ratio=middle(updates)))
        elif middle(updates) > 1e-4:
            case.against(STRONG, texts.text("causes.flat.update", ratio=middle(updates)))
    else:
        case.lacks(texts.text("causes.lacks.optimizer"))
    return case


def always_clipped(place: Place) -> Case:
    """Clipping takes nearly all of each gradient. Adam divides by the gradient's size, so it seldom matters there."""
    case = Case("clipping", texts.text("causes.flat.next_clip"))
    norms, factors = (place.values(f"train/{name}", range(len(place.curves))) for name in ("grad_norm", "clip_coef"))
    if factors and middle(factors) < 0.01:
        text = texts.text("causes.flat.clipped", factor=middle(factors))
        text += texts.text("causes.flat.clipped_norm", norm=short(middle(norms))) if norms else "."
        case.supports(FAIR, text)
    return case


def rate_broke_it(place: Place) -> Case:
    """Too high a rate can hold the loss on a plateau above what the model knew already."""
    case = lr_too_high(place)
    losses = place.values("train/loss", range(len(place.curves)))
    if len(losses) >= 20:
        low, late = min(losses[: len(losses) // 2]), middle(losses[-10:])
        if late > low + 0.3:
            case.supports(STRONG, texts.text("causes.flat.lost", low=short(low), late=short(late)))
    return case


def _is_adapter(place: Place) -> bool:
    settings = place.curves.settings
    if settings.get("finetuning_type") in ("lora", "oft"):
        return True
    parameters = (place.curves.run.get("model") or {}).get("parameters") or {}
    return bool(parameters.get("total")) and parameters.get("trainable", 0) < 0.5 * parameters["total"]
