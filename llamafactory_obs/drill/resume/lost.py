"""What was lost, by its marks in the curves and in the last checkpoint.

Each part leaves a mark of its own. A lost scheduler counts from the start: another learning rate, or only another
count. A lost optimizer makes the same first step from the same gradients, and its own count of steps begins anew. A
lost place in the data gives other samples. Lost random numbers end in another state of the generators, and with dropout
the first loss after the resume is another one.
"""

from .curves import Curves
from .end_state import StateDifference
from .outcome import DIFFERS, EQUAL, UNKNOWN, Lost, Measure
from .words import called, say

_ORDER = ("trainer_state", "weights", "optimizer", "scheduler", "scaler", "data_order", "rng")


def losses_after(
    first: Curves, resumed: Curves, measures: list[Measure], states: dict[str, StateDifference]
) -> dict[str, str]:
    """Part -> the mark that it left; empty where nothing parts."""
    by_name = {measure.name: measure for measure in measures}
    if not any(measure.status == DIFFERS for measure in measures):
        return {}
    start = min(resumed.steps)
    found = {}
    if by_name["learning rate"].status == DIFFERS:
        found["scheduler"] = _pair("learning rate", "train/lr", first, resumed, by_name["learning rate"].first)
    elif counts := _counts(states["scheduler"]):
        found["scheduler"] = say("after.counts_lr", **counts)
    if counts := _counts(states["optimizer"]):
        found["optimizer"] = say("after.counts", **counts)
    elif states["optimizer"].counts is None and _first_update_is_another(by_name, start):
        found["optimizer"] = say("after.first_update", step=start)
    samples = by_name["samples"]
    if samples.status == DIFFERS:
        found["data_order"] = say("after.samples", step=samples.first)
    elif samples.status == UNKNOWN and by_name["epoch"].status == DIFFERS:
        found["data_order"] = _pair("epoch", "train/epoch", first, resumed, by_name["epoch"].first)
    if samples.status == EQUAL:
        found |= _random_or_weights(first, resumed, by_name, start)
    return found


def joined(before: dict[str, str], after: dict[str, str]) -> list[Lost]:
    """Each part with both kinds of evidence."""
    parts = sorted({*before, *after}, key=lambda part: _ORDER.index(part) if part in _ORDER else len(_ORDER))
    return [Lost(part, before.get(part, ""), after.get(part, "")) for part in parts]


def _random_or_weights(first: Curves, resumed: Curves, by_name: dict[str, Measure], start: int) -> dict[str, str]:
    """The same samples: what differs in the first forward pass is drawn at random, or the weights themselves."""
    other_numbers = by_name["rng state"].status == DIFFERS
    loss = by_name["loss"]
    at_once = loss.status == DIFFERS and loss.first == start
    if other_numbers and at_once:
        told = _pair("loss", "train/loss", first, resumed, start)
        return {"rng": say("after.rng_loss", told=told)}
    if other_numbers:
        return {"rng": say("after.rng" if loss.status == DIFFERS else "after.rng_unused")}
    if at_once:
        told = _pair("loss", "train/loss", first, resumed, start)
        return {"weights": say("after.weights", told=told)}
    return {}


def _first_update_is_another(by_name: dict[str, Measure], start: int) -> bool:
    """For optimizers that count no steps."""
    norm, loss = by_name["gradient norm"], by_name["loss"]
    same_inputs = by_name["samples"].status == EQUAL and by_name["learning rate"].status == EQUAL
    firsts = [measure.first for measure in (norm, loss) if measure.status == DIFFERS]
    return same_inputs and bool(firsts) and min(firsts) > start


def _counts(state: StateDifference) -> dict[str, float]:
    if state.counts is None or state.counts[0] == state.counts[1]:
        return {}
    return {"was": state.counts[0], "now": state.counts[1]}


def _pair(name: str, column: str, first: Curves, resumed: Curves, step: int) -> str:
    was, now = first.columns[column][step], resumed.columns[column][step]
    digits = next((n for n in (4, 6, 9, 17) if f"{was:.{n}g}" != f"{now:.{n}g}"), 17)
    shown = {"now": f"{now:.{digits}g}", "was": f"{was:.{digits}g}"}
    return say("after.pair", name=called("measure", name), step=step, **shown)
