"""The optimizer's own state: moments that are broken or out of date, an update out of proportion."""

from .evidence import DECISIVE, FAIR, STRONG, Case
from .ordinary import middle, short
from .place import Place


def optimizer_moments(place: Place) -> Case:
    """The update was out of proportion to the gradient."""
    case = Case("optimizer_moments", "A smaller adam_beta2 (0.95) and max_grad_norm 1.0; resume from before it.")
    for title in ("broken moments", "vanished moments"):
        for event in place.events(title, before=100, after=1)[:1]:
            case.supports(DECISIVE if title == "broken moments" else FAIR, f"Step {event['step']}: {event['text']}")
    for name, words in (("train/update_ratio", "The update"), ("train/adam_step_max", "Adam's largest step")):
        past, near = place.past(name), place.near(name, 1, 1)
        if past is not None and near:
            value = max(near)
            weight = past.weight(value, low=False)
            if weight:
                text = f"{words} was {short(value)}, {short(past.median)} at the median before (z {past.z(value):.1f})."
                case.supports(weight, text)
            else:
                case.against(FAIR, f"{words} was ordinary: {short(value)}.")
        elif name == "train/update_ratio":
            case.lacks("`optimizer: {every: 1}` (update ratio and moments of each step)")
    _quiet_before(place, case)
    return case


def _quiet_before(place: Place, case: Case) -> None:
    """Small gradients for a while make the second moments small; the next ordinary gradient is then a large step.

    Molybog et al. 2023 ("A Theory on Adam Instability in Large-Scale Machine Learning", arXiv 2304.09871).
    """
    late = place.values("train/grad_norm", range(max(place.row - 16, 0), place.row))
    earlier = place.values("train/grad_norm", range(max(place.row - 128, 0), max(place.row - 16, 0)))
    if len(late) < 8 or len(earlier) < 16:
        return
    ratio = middle(late) / max(middle(earlier), 1e-12)
    if ratio <= 0.3:
        text = f"The gradient norm had been quiet for 16 rows, {ratio:.2g} of what it was before"
        case.supports(STRONG if ratio <= 0.1 else FAIR, f"{text}: the second moments had become small.")
