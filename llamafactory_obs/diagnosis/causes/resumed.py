"""A resume that did not bring everything back: the optimizer's state, or the order of the data.

What can be seen of it is what `continuity` says; here it is weighed as the cause of something else.
"""

from pathlib import Path

from ...continuity.offline import verdict_at
from ...continuity.said import CLOSE, DIFFERS, EQUAL, GOES_ON, Continuity, Said
from ...logs.curves import Break
from ...texts import text
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case, quoted
from .ordinary import short
from .place import Place

_NEAR = 12  # rows after a resume in which a fault is put down to it
#: steps made twice from which on their loss says whether the state was the same
_ENOUGH = 8
#: what holds an optimizer's state: plain, FSDP, DeepSpeed (see `checkpoint/resume_state.py`)
_STATES = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*", "latest")


def optimizer_state_lost(place: Place) -> Case:
    """The moments and the schedule began anew after a resume."""
    case = Case("optimizer_state_lost")
    resumed = _resume(place)
    if resumed is None:
        return case
    step = place.curves.steps[resumed.row]
    case.next = text("continuity.cause.next_state", dir=place.dir)
    case.supports(WEAK, text("continuity.cause.resumed", step=step, rows=place.row - resumed.row))
    fresh = [e for e in place.curves.events if e.get("title") == "optimizer state fresh" and abs(e["step"] - step) <= 2]
    if fresh:
        case.supports(DECISIVE, quoted(fresh[-1]))
    elif place.curves.source == "obs" and "optimizer" in _callbacks(place, step):
        case.against(STRONG, text("continuity.cause.moments_go_on"))
    else:
        case.lacks(text("continuity.cause.lacks_optimizer"))
    said = verdict_at(place.curves, resumed)
    if said is not None:
        _state(said, case, is_told=bool(fresh))
        _rate(place, resumed, said, case)
        _loss_again(said, case)
    _moments(place, resumed, case)
    _checkpoint(place, step - 1, case)
    return case


def data_order_lost(place: Place) -> Case:
    """Other rows after a resume than the run would have had: begun again, or in another order."""
    case = Case("data_order_lost", text("continuity.cause.next_data"))
    resumed = _resume(place)
    said = verdict_at(place.curves, resumed) if resumed is not None else None
    if said is None:
        return case
    epoch, samples = said.columns["epoch"], said.columns["samples"]
    if epoch.status == DIFFERS:
        case.supports(STRONG, _sentence(epoch.told))
    elif epoch.status in (EQUAL, GOES_ON):
        case.against(WEAK, _sentence(epoch.told))
    if samples.status == DIFFERS:
        case.supports(DECISIVE, _sentence(samples.told))
    elif samples.status in (EQUAL, GOES_ON):
        case.against(DECISIVE, _sentence(samples.told))
    else:
        case.lacks(text("continuity.cause.lacks_samples"))
    return case


def _resume(place: Place) -> Break | None:
    if place.finding.name == "resume_gap" and place.curves.breaks:
        near = [one for one in place.curves.breaks if one.row <= place.seen + 1]
        return near[-1] if near else place.curves.breaks[0]
    return place.resume(_NEAR)


def _state(said: Continuity, case: Case, is_told: bool) -> None:
    """What was not restored, by the record of the start itself or by the marks in the numbers."""
    for one in said.not_restored:
        if one.part == "optimizer" and one.by != "folder" and not (is_told and one.by == "trainer"):
            weight = STRONG if one.by == "numbers" else DECISIVE
            told = one.why if isinstance(one.why, Said) else Said("lacks.optimizer", {"why": one.why})
            case.supports(weight, _sentence(told))


def _rate(place: Place, resumed: Break, said: Continuity, case: Case) -> None:
    """The schedule's course over the resume.

    A schedule that begins anew may have a first rate of 0, as the old one had at its end: so the next rows count too.
    """
    rate = said.columns["learning_rate"]
    if rate.status == DIFFERS:
        case.supports(STRONG, _sentence(rate.told))
        return
    row = resumed.row
    earlier, before = (place.at("train/lr", row - back) for back in (2, 1))
    soon = max(place.values("train/lr", range(row, min(row + 3, len(place.curves)))), default=0.0)
    falls = earlier is not None and before is not None and before <= earlier
    if falls and soon > 2 * max(before, earlier):
        told = text("continuity.cause.rate_anew", before=short(before), soon=short(soon))
        case.supports(STRONG, told)
    elif rate.status in (EQUAL, GOES_ON):
        case.against(FAIR, _sentence(rate.told))


def _loss_again(said: Continuity, case: Case) -> None:
    """Steps that were made twice: had they the same loss again?"""
    loss = said.columns["loss"]
    if loss.compared < _ENOUGH:
        return
    if loss.status == DIFFERS:
        case.supports(FAIR, _sentence(loss.told))
    elif loss.status in (EQUAL, CLOSE):
        case.against(STRONG, _sentence(loss.told))


def _moments(place: Place, resumed: Break, case: Case) -> None:
    name = "train/exp_avg_norm"
    before = place.values(name, range(max(resumed.row - 200, 0), resumed.row))
    after = place.values(name, range(resumed.row, min(resumed.row + 5, len(place.curves))))
    if before and after and after[0] < 0.3 * before[-1]:
        told = text("continuity.cause.moments_fell", before=short(before[-1]), after=short(after[0]))
        case.supports(STRONG, told)


def _checkpoint(place: Place, step: int, case: Case) -> None:
    """The checkpoint itself, where it still lies there."""
    folder = place.curves.checkpoints.get(step)
    if folder is None or not Path(folder).is_dir():
        return
    name = Path(folder).name
    if any(any(Path(folder).glob(pattern)) for pattern in _STATES):
        case.against(FAIR, text("continuity.cause.holds_state", name=name))
    else:
        case.supports(DECISIVE, text("continuity.cause.holds_none", name=name))


def _sentence(told: Said) -> str:
    return text("continuity.cause.sentence", said=told.words())


def _callbacks(place: Place, step: int) -> list[str]:
    starts = [e for e in place.curves.events if e.get("kind") == "resume" and abs(e["step"] - step) <= 2]
    listed = (starts[-1].get("evidence") or {}).get("callbacks") if starts else None
    return listed if isinstance(listed, list) else str(listed or "").split(", ")
