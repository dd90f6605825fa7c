"""The optimizer's own state: moments that are broken or out of date, an update out of proportion."""

from ... import texts
from .evidence import DECISIVE, FAIR, STRONG, Case, quoted
from .ordinary import middle, short
from .place import Place


def optimizer_moments(place: Place) -> Case:
    """The update was out of proportion to the gradient."""
    case = Case("optimizer_moments", texts.text("causes.moments.next"))
    for title in ("broken moments", "vanished moments"):
        for event in place.events(title, before=100, after=1)[:1]:
            case.supports(DECISIVE if title == "broken moments" else FAIR, quoted(event))
    for name in ("train/update_ratio", "train/adam_step_max"):
        past, near = place.past(name), place.near(name, 1, 1)
        if past is not None and near:
            value = max(near)
            weight = past.weight(value, low=False)
            words = texts.text(f"causes.word.{name}")
            if weight:
                text = texts.text(
                    "causes.moments.was", words=words, value=short(value), usual=short(past.median), z=past.z(value)
                )
                case.supports(weight, text)
            else:
                case.against(FAIR, texts.text("causes.moments.ordinary", words=words, value=short(value)))
        elif name == "train/update_ratio":
            case.lacks(texts.text("causes.moments.lacks"))
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
        text = texts.text("causes.moments.quiet", ratio=ratio)
        case.supports(STRONG if ratio <= 0.1 else FAIR, texts.text("causes.moments.small", text=text))
