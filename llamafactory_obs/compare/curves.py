"""Where the curves of two runs part, by `detect/parting.py`."""

import numpy as np

from ..detect.parting import FLOOR, LEAST, part
from ..logs.names import EVAL, LOSS
from .axis import Places, column, paired
from .model import CurveParting, EvalPair, Run

#: a smaller difference of two single runs is not told from what another seed alone does
_BAND = 0.02
_ENOUGH = 5


def partings(a: Run, b: Run, places: Places, floor: float = FLOOR) -> list[CurveParting]:
    """The training loss, and the evaluation loss where there are enough evaluations; `floor` as in `detect.parting`."""
    found = []
    for name in (LOSS, EVAL):
        (steps_a, values_a), (steps_b, values_b) = column(a.curves, name), column(b.curves, name)
        if len(steps_a) and len(steps_b):
            x, one, other = paired(steps_a, values_a, places.of_b(steps_b), values_b)
            if name == LOSS or len(x) >= LEAST:
                found.append(_parting(name, x, one, other, floor))
    return found


def _parting(name: str, x: np.ndarray, a: np.ndarray, b: np.ndarray, floor: float) -> CurveParting:
    judged = part(a.tolist(), b.tolist(), floor=floor)

    def step(row: int | None) -> int | None:
        return None if row is None else round(float(x[row]))

    return CurveParting(name, judged, step(judged.since), step(judged.seen), step(judged.until))


def evaluation(a: Run, b: Run, same_set: bool | None, places: Places, spread: float = 0.0) -> EvalPair | None:
    """The best evaluation of each; the band is 2 %, twice the noise of their difference, or the spread
    between seeds, whichever is most."""
    best_a, best_b = a.summary.evaluations.best, b.summary.evaluations.best
    if best_a is None or best_b is None or min(best_a[2], best_b[2]) <= 0:
        return None
    (steps_a, values_a), (steps_b, values_b) = column(a.curves, EVAL), column(b.curves, EVAL)
    x, one, other = paired(steps_a, values_a, places.of_b(steps_b), values_b)
    noise = float(np.hypot(*(_noise(values[np.isfinite(values) & (values > 0)]) for values in (values_a, values_b))))
    ratios = other / one
    if len(ratios):  # equal ones at the start, of one start, say nothing of noise
        ratios = ratios[np.argmax(ratios != 1) :]
    if len(ratios) >= _ENOUGH:  # what both curves share, their bend above all, is no noise
        noise = min(noise, _noise(ratios))
    difference = float(np.log(best_b[2] / best_a[2]))
    ends = {a.id: best_a[0], b.id: float(places.of_b(np.array([best_b[0]]))[0])}
    beyond = next((id_ for id_, at in ends.items() if places.axis.high is not None and at > places.axis.high), "")
    common = (round(float(x[-1])), float(one[-1]), float(other[-1])) if len(x) else None
    band = max(_BAND, 2 * noise, spread)
    return EvalPair(
        best_a[2], best_b[2], best_a[0], best_b[0], difference, band, same_set, beyond=beyond, common=common
    )


def _noise(values: np.ndarray) -> float:
    """Standard deviation of one evaluation's ln(loss): the robust one of second differences, in which a steady fall
    leaves nothing, over sqrt(6). 0 with fewer than five."""
    if len(values) < _ENOUGH:
        return 0.0
    return float(1.4826 * np.median(np.abs(np.diff(np.log(values), 2))) / np.sqrt(6))
