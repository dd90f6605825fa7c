"""The learning rate: a change of it, or one that is too high for the model."""

import math

from ... import texts
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case, quoted
from .ordinary import short
from .place import Place
from .updates import update_ratios

_NEAR = 10  # rows between a change of the rate and what it does
_JUMP = 1.5
_PLANNED = ("jump", "rate rises", "rate rises again")
_UNPLANNED = ("rate set from outside", "unexplained jump")


def lr_change(place: Place) -> Case:
    """The rate changed its course shortly before: by hand, by a callback, by a schedule's jump."""
    case = Case("lr_change", texts.text("causes.rate.next_change"))
    if not place.curves.has("train/lr"):
        case.lacks(texts.text("causes.rate.lacks"))
        return case
    resumed = place.resume(_NEAR)
    hand = place.events("scaled", before=_NEAR)[:1]
    for event in hand:
        case.supports(DECISIVE, quoted(event))
    scale, before = place.at("train/lr_scale") or 1.0, place.at("train/lr_scale", max(place.row - _NEAR, 0)) or 1.0
    if scale != before and not hand:
        case.supports(DECISIVE, texts.text("causes.rate.scaled", before=short(before), scale=short(scale)))
    for event in place.events(*_UNPLANNED, before=_NEAR)[:1]:
        case.supports(STRONG, quoted(event))
    jump = _jump(place)
    if jump is not None:
        row, ratio = jump
        before, after = place.at("train/lr", row - 1), place.at("train/lr", row)
        away = place.row - row
        sentence = texts.text("causes.rate.went", before=short(before), after=short(after), ratio=ratio)
        sentence += texts.text("causes.rate.at", step=place.curves.steps[row]) + (
            texts.text("causes.rate.rows_before", away=away, s="s" * (away > 1)) if away else "."
        )
        case.supports(DECISIVE if ratio >= 3 and away <= 5 else STRONG, sentence)
    elif not hand and scale == before:
        case.against(STRONG, texts.text("causes.rate.no_jump", near=_NEAR, course=_course(place)))
    if resumed is not None:
        text = texts.text("causes.rate.resumed", step=place.curves.steps[resumed.row])
        case.against(STRONG, text)
    return case


def lr_too_high(place: Place) -> Case:
    """The rate is more than this model stands: updates too large, the loss turns where the rate grows."""
    case = Case("lr_too_high", texts.text("causes.rate.next_high"))
    against_the_size(place, case)
    updates(place, case, range(max(place.row - 100, 0), place.row + 11))
    if not place.curves.has("train/lr"):
        case.lacks(texts.text("causes.rate.lacks"))
        return case
    rates = place.values("train/lr", range(max(place.row - _NEAR, 0), place.row + 1))
    peak = max(place.values("train/lr", range(place.row + 1)), default=0.0)
    rate = rates[-1] if rates else 0.0
    if len(rates) > 2 and rates[-1] > rates[0] * 1.05:
        text = texts.text("causes.rate.turned", first=short(rates[0]), last=short(rate), rows=len(rates))
        case.supports(FAIR, text)
    elif peak and rate >= 0.9 * peak:
        case.supports(WEAK, texts.text("causes.rate.highest", rate=short(rate)))
    elif peak and rate < 0.5 * peak:
        case.against(FAIR, texts.text("causes.rate.had_been", peak=short(peak), rate=short(rate)))
    _how_it_went_on(place, case)
    return case


def _jump(place: Place) -> tuple[int, float] | None:
    """The row of the largest jump upwards in the rows before, and its ratio."""
    best = None
    for row in range(max(place.row - _NEAR, 1), place.row + 1):
        a, b, c = (place.at("train/lr", row - back) for back in (2, 1, 0))
        if not b or c is None or b <= 0 or c / b < _JUMP:
            continue
        if a is None or c - b <= 5 * abs(b - a):  # the start of a warm-up doubles the rate, too
            continue
        if best is None or c / b > best[1]:
            best = row, c / b
    return best


def _course(place: Place) -> str:
    first, last = place.at("train/lr", max(place.row - _NEAR, 0)), place.at("train/lr")
    return texts.text("causes.rate.course", first=short(first), last=short(last))


def size_rule(place: Place) -> tuple[float, float, str] | None:
    """The highest rate so far, the usual one for a model of this size, and what the model is; None where not known.

    Kaplan et al. 2020 (arXiv 2001.08361, equation D.1): Adam's rate 0.003239 - 0.0001395 ln N for N parameters trained
    from scratch, so it is generous for fine-tuning. LoRA takes about ten times the rate of full fine-tuning (Schulman
    et al. 2025, "LoRA Without Regret").
    """
    parameters = (place.curves.run.get("model") or {}).get("parameters") or {}
    size, rates = parameters.get("total"), place.values("train/lr", range(place.row + 1))
    if not size or not rates:
        return None
    adapter = parameters.get("trainable", size) < 0.5 * size
    usual = max(0.003239 - 0.0001395 * math.log(size), 1e-5) * (10 if adapter else 1)
    return max(rates), usual, texts.text("causes.rate.adapter" if adapter else "causes.rate.model", size=size)


def against_the_size(place: Place, case: Case) -> None:
    """The peak rate against the rule, from 3 times on: runs at twice the rule are common."""
    known = size_rule(place)
    if known is None:
        case.lacks(texts.text("causes.rate.lacks_size"))
        return
    peak, usual, model = known
    text = texts.text("causes.rate.reached", peak=short(peak), ratio=peak / usual, usual=short(usual), model=model)
    text += texts.text("causes.rate.rule")
    if peak >= 3 * usual:
        case.supports(STRONG if peak >= 10 * usual else FAIR, text)
    elif peak <= usual:
        case.against(WEAK, text)


def updates(place: Place, case: Case, rows: range) -> None:
    """The largest update of these rows: |update| / |weights|. About 0.001 is healthy (Karpathy's rule of thumb).

    A model that is trained from scratch has up to 0.015 in its first steps (measured: random Qwen3 of 0.6M parameters
    at a good rate; at 20 times that rate 0.06 to 0.13).
    """
    steps = place.curves.steps
    first, last = steps[rows.start], steps[min(rows.stop, len(steps)) - 1]
    found = [(step, ratio) for step, ratio in update_ratios(place) if first <= step <= last]
    if not found:
        case.lacks(texts.text("causes.lacks.optimizer"))
        return
    step, ratio = max(found, key=lambda one: one[1])
    if ratio >= 0.02:
        text = texts.text("causes.rate.update", step=step, ratio=ratio)
        case.supports(STRONG if ratio >= 0.04 else FAIR, text)
    elif ratio <= 0.003:
        case.against(WEAK, texts.text("causes.rate.small", ratio=ratio))


def _how_it_went_on(place: Place, case: Case) -> None:
    if place.series != "train/loss":
        return
    if len(place.earlier) >= 2:  # Cohen et al. 2021, arXiv 2103.00065
        text = texts.text("causes.rate.edge", times=len(place.earlier))
        case.supports(FAIR, text)
    steps = len(place.raised)
    if steps >= 8 or not place.came_back:
        text = texts.text("causes.rate.not_back") if not place.came_back else texts.text("causes.rate.up", steps=steps)
        case.supports(FAIR, texts.text("causes.rate.damaged", text=text))
    elif steps == 1 and place.curves.logging_steps == 1:
        case.against(FAIR, texts.text("causes.rate.back"))
    earlier = place.values("train/grad_norm", range(max(place.row - 64, 0), max(place.row - 8, 0)))
    late = place.values("train/grad_norm", range(max(place.row - 8, 0), place.row))
    if len(earlier) >= 12 and len(late) >= 4:
        grown = sorted(late)[len(late) // 2] / max(sorted(earlier)[len(earlier) // 2], 1e-12)
        if grown >= 2:
            case.supports(FAIR, texts.text("causes.rate.grown", grown=grown))
