"""Numbers that are NaN or infinite, and a loss of 0: what made them so."""

import math

from ... import texts
from .batch import about_columns
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import short
from .place import Place

_FIRST_ROWS = 3


def all_labels_masked(place: Place) -> Case:
    """No token had a label: the loss is 0/0, or 0."""
    case = Case("all_labels_masked", texts.text("causes.dead.next_mask"))
    tokens, masked = place.at("data/supervised_tokens"), place.at("data/fully_masked")
    samples = place.at("data/samples")
    if tokens is None:
        case.lacks(texts.text("causes.lacks.label_mask_tokens"))
    elif tokens == 0:
        case.supports(DECISIVE, texts.text("causes.dead.no_label", step=place.step))
    else:
        case.against(STRONG, texts.text("causes.dead.labels", tokens=tokens, step=place.step))
        if masked and samples and masked >= 0.5 * samples:
            case.supports(FAIR, texts.text("causes.dead.masked", masked=masked, samples=samples))
    return case


def broken_weights(place: Place) -> Case:
    """Weights that were not finite before this run changed them, or that the update made so."""
    case = Case("broken_weights", texts.text("causes.dead.next_weights", dir=place.dir))
    named = _evidence(place, "nonfinite_weights").get("nonfinite_weights")
    if named:
        case.supports(STRONG, texts.text("causes.dead.weights", names=", ".join(map(str, named[:3]))))
    if place.row <= 1:
        case.supports(FAIR, texts.text("causes.dead.from_the_start"))
    elif place.row > _FIRST_ROWS:
        case.against(FAIR, texts.text("causes.dead.finite_rows", row=place.row))
    if place.events("broken moments", before=50, after=1):
        case.supports(FAIR, texts.text("causes.dead.moments"))
    return case


def bad_gradient(place: Place) -> Case:
    """One layer's backward pass gave the first number that was not finite: attention backend, kernel, custom loss."""
    case = Case("attention_or_kernel", texts.text("causes.dead.next_kernel"))
    said = _evidence(place, "nonfinite_gradients")
    named, count = said.get("nonfinite_gradients"), said.get("gradient_count") or 0
    if named and count and len(named) < count:
        text = texts.text("causes.dead.gradients", names=", ".join(map(str, named[:3])), bad=len(named), count=count)
        case.supports(STRONG, text)
    course = _course(place)
    if course is not None and course["grew"]:  # what grows ends somewhere first
        case.against(FAIR, _grown(course))
    losses = place.near("train/loss", 1, 0)
    if losses and math.isfinite(losses[-1]) and losses[-1] != 0:
        case.supports(WEAK, texts.text("causes.dead.in_backward", loss=short(losses[-1])))
    settings = place.curves.settings
    if settings.get("neat_packing") is True:
        case.supports(FAIR, texts.text("causes.dead.neat_packing"))
    if not named:
        case.lacks(texts.text("causes.dead.lacks_gradient"))
    return case


def bad_batch(place: Place) -> Case:
    """NaN that came in with the data of one batch."""
    case = Case("special_batch", texts.text("causes.replay", dir=place.dir, step=place.step))
    about_columns(place, case)
    moved = place.at("data/labels_moved")
    if moved:
        case.supports(DECISIVE, texts.text("causes.labels_moved", moved=moved, step=place.step))
    if place.at("data/max_length") is None:
        case.lacks(texts.text("causes.lacks.label_mask"))
    return case


def grew_until(place: Place, case: Case) -> Case:
    """Adds to a rate that is too high: loss or norm had been growing before the first NaN."""
    course = _course(place)
    if course is not None and course["grew"]:
        case.supports(STRONG, _grown(course))
    elif course is not None:
        case.against(FAIR, texts.text("causes.dead.not_grown", **{name: course[name] for name in _COURSE}))
    return case


_COURSE = ("words", "low", "last", "rows")


def _course(place: Place) -> dict | None:
    """How loss, or else the norm, went over the 40 rows before; None where that is not known."""
    for name in ("train/loss", "train/grad_norm"):
        values = place.values(name, range(max(place.row - 40, 0), place.row))
        if len(values) >= 8:
            low, last = min(values), sorted(values[-3:])[1]
            words = texts.text(f"causes.word.{name}")
            grew = last >= 2 * low and last - low > 0.5
            return {"words": words, "low": short(low), "last": short(last), "rows": len(values), "grew": grew}
    return None


def _grown(course: dict) -> str:
    return texts.text("causes.dead.grown", **{name: course[name] for name in _COURSE[:3]})


def memorised(place: Place) -> Case:
    """A loss of 0 that is honest: everything is known by heart, and the log rounds."""
    case = Case("memorised", texts.text("causes.dead.next_memorised"))
    values = place.values("train/loss", range(max(place.row - 20, 0), place.row))
    above = [value for value in values if value > 0]
    if above and above[-1] < 0.02:
        case.supports(STRONG, texts.text("causes.dead.came_down", loss=short(above[-1])))
    elif above:
        case.against(STRONG, texts.text("causes.dead.too_fast", loss=short(above[-1])))
    norms = place.values("train/grad_norm", range(place.row, min(place.row + 5, len(place.curves))))
    if norms and max(norms) > 0:
        case.supports(WEAK, texts.text("causes.dead.norm_finite", norm=short(max(norms))))
    return case


def filtered_nan(place: Place) -> Case:
    """A loss of 0 that stands for NaN: `logging_nan_inf_filter` replaces it."""
    case = Case("nan_behind_zero", texts.text("causes.dead.next_zero"))
    norms = [place.at("train/grad_norm", row) for row in range(place.row, min(place.row + 5, len(place.curves)))]
    known = [value for value in norms if value is not None]
    if any(not math.isfinite(value) for value in known):
        case.supports(DECISIVE, texts.text("causes.dead.norm_bad"))
    elif known:
        case.against(STRONG, texts.text("causes.dead.norm_good"))
    else:
        case.lacks(texts.text("causes.dead.lacks_norm"))
    before = place.values("train/loss", range(max(place.row - 5, 0), place.row))
    if before and before[-1] > 0.1:
        case.supports(STRONG, texts.text("causes.dead.read", loss=short(before[-1])))
    return case


def _evidence(place: Place, key: str) -> dict:
    """The evidence that names something under `key`: the finding's own, else that of the first alert near it."""
    near = [event for event in place.curves.events if abs(event.get("step", -9) - place.step) <= 3]
    for evidence in (place.finding.evidence, *(event.get("evidence") or {} for event in near)):
        if evidence.get(key):
            return evidence
    return {}
