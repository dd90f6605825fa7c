"""A loss that does not fall: nothing is learnt, or nothing can be."""

from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import middle, short
from .place import Place
from .rate import lr_too_high
from .updates import LACKING, update_ratios


def nothing_trainable(place: Place) -> Case:
    """The adapter is not attached, or everything is frozen."""
    case = Case("nothing_trainable", "Check lora_target and the trainable count that is printed before training.")
    model = place.curves.run.get("model") or {}
    parameters = model.get("parameters") or {}
    trainable, total = parameters.get("trainable"), parameters.get("total")
    if trainable is None:
        case.lacks("the number of trainable parameters (`run.json`, which any of our callbacks writes)")
    elif trainable == 0:
        case.supports(DECISIVE, "No parameter is trainable.")
    elif total and trainable / total < 1e-5:
        case.supports(STRONG, f"Only {trainable:,} of {total:,} parameters are trainable.")
    else:
        case.against(STRONG, f"{trainable:,} parameters are trainable.")
    norms = place.values("train/grad_norm", range(len(place.curves)))
    if norms and max(norms) == 0:
        case.supports(STRONG, "The gradient norm is exactly 0 at every row: no gradient reaches a trainable weight.")
    elif norms:
        case.against(FAIR, f"Gradients reach the weights: their norm is {short(middle(norms))} at the median.")
    else:
        case.lacks("the gradient norm")
    return case


def labels_masked(place: Place) -> Case:
    """Nearly all labels are masked, or they are not those of the text."""
    case = Case("labels", "llamafactory-obs mask RUN.yaml: which tokens are in the loss; and look at three samples.")
    shares = place.values("data/supervised_ratio", range(len(place.curves)))
    if not shares:
        case.lacks("`label_mask` (share of tokens with a label)")
    elif middle(shares) < 0.01:
        case.supports(DECISIVE, f"Only {middle(shares):.2%} of the tokens have a label.")
    else:
        case.against(FAIR, f"{middle(shares):.0%} of the tokens have a label.")
    column = place.curves.columns.get("data/labels_moved")
    moved = [] if column is None else [value for value in column if value]
    if moved:
        case.supports(DECISIVE, f"In {len(moved)} rows labels are not the tokens at their own positions.")
    elif column is not None:
        case.against(WEAK, "All labels are the tokens at their own positions.")
    return case


def lr_too_small(place: Place) -> Case:
    """Updates too small to change anything: healthy ones are about 0.001 of the weights' norm (Karpathy)."""
    case = Case("lr_too_small", "Raise learning_rate ten times (LoRA: 1e-4 to 5e-4; full: 1e-5 to 5e-5).")
    rates = place.values("train/lr", range(len(place.curves)))
    if not rates:
        case.lacks("the learning rate (train/lr)")
    elif max(rates) == 0:
        case.supports(DECISIVE, "The learning rate is 0 at every row.")
    else:
        adapter = _is_adapter(place)
        low = 1e-5 if adapter else 5e-7
        if max(rates) <= low:
            kind = "an adapter" if adapter else "full fine-tuning"
            case.supports(STRONG, f"The rate never exceeds {short(max(rates))}: at most a tenth of what {kind} takes.")
        elif max(rates) > 10 * low:
            case.against(WEAK, f"The rate reaches {short(max(rates))}.")
    updates = [ratio for _, ratio in update_ratios(place)]
    if updates:
        if middle(updates) < 1e-5:
            case.supports(STRONG, f"An update changes the weights by {middle(updates):.1e} of their norm.")
        elif middle(updates) > 1e-4:
            case.against(STRONG, f"An update changes the weights by {middle(updates):.1e} of their norm.")
    else:
        case.lacks(LACKING)
    return case


def always_clipped(place: Place) -> Case:
    """Clipping takes nearly all of each gradient. Adam divides by the gradient's size, so it seldom matters there."""
    case = Case("clipping", "Raise max_grad_norm to about the usual norm.")
    norms, factors = (place.values(f"train/{name}", range(len(place.curves))) for name in ("grad_norm", "clip_coef"))
    if factors and middle(factors) < 0.01:
        text = f"Clipping leaves {middle(factors):.2%} of the gradient at the median"
        text += f" (norm {short(middle(norms))})." if norms else "."
        case.supports(FAIR, text)
    return case


def rate_broke_it(place: Place) -> Case:
    """Too high a rate can hold the loss on a plateau above what the model knew already."""
    case = lr_too_high(place)
    losses = place.values("train/loss", range(len(place.curves)))
    if len(losses) >= 20:
        low, late = min(losses[: len(losses) // 2]), middle(losses[-10:])
        if late > low + 0.3:
            case.supports(STRONG, f"The loss had been {short(low)} and stays at {short(late)}: it was lost again.")
    return case


def _is_adapter(place: Place) -> bool:
    settings = place.curves.settings
    if settings.get("finetuning_type") in ("lora", "oft"):
        return True
    parameters = (place.curves.run.get("model") or {}).get("parameters") or {}
    return bool(parameters.get("total")) and parameters.get("trainable", 0) < 0.5 * parameters["total"]
