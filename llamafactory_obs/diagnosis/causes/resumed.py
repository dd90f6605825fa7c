"""A resume that did not bring everything back: the optimizer's state, or the order of the data."""

import math
from pathlib import Path

from ...logs.curves import Break
from ...record.reader import read_rows
from ...record.samples import sample_files
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import middle, short
from .place import Place

_NEAR = 12  # rows after a resume in which a fault is put down to it
#: what holds an optimizer's state: plain, FSDP, DeepSpeed (see `checkpoint/resume_state.py`)
_STATES = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*", "latest")


def optimizer_state_lost(place: Place) -> Case:
    """The moments and the schedule began anew after a resume."""
    case = Case("optimizer_state_lost")
    resumed = _resume(place)
    if resumed is None:
        return case
    step = place.curves.steps[resumed.row]
    case.next = (
        f"Resume from a checkpoint that has optimizer.pt and scheduler.pt (llamafactory-obs checkpoint {place.dir})."
    )
    case.supports(WEAK, f"Training resumed at step {step}, {place.row - resumed.row} rows before.")
    fresh = [e for e in place.curves.events if e.get("title") == "optimizer state fresh" and abs(e["step"] - step) <= 2]
    if fresh:
        case.supports(DECISIVE, fresh[-1]["text"])
    elif place.curves.source == "obs" and "optimizer" in _callbacks(place, step):
        case.against(STRONG, "`optimizer` was on and saw moments that go on.")
    else:
        case.lacks("`optimizer` (says whether the moments came back)")
    _rate(place, resumed, case)
    _moments(place, resumed, case)
    _checkpoint(place, step - 1, case)
    _overlaps(place, resumed, case)
    return case


def data_order_lost(place: Place) -> Case:
    """Other rows after a resume than the run would have had: begun again, or in another order."""
    case = Case("data_order_lost", "Resume with the same seed, data and batch size, and without ignore_data_skip.")
    resumed = _resume(place)
    if resumed is None:
        return case
    before, after = _epoch(place, resumed.row - 1), _epoch(place, resumed.row)
    overlap = place.curves.steps[resumed.row] <= place.curves.steps[max(resumed.row - 1, 0)]
    if before is not None and after is not None and not overlap:
        if after < before:
            case.supports(STRONG, f"The epoch fell from {before:.3f} to {after:.3f} although the step went on.")
        else:
            case.against(WEAK, f"The epoch went on, from {before:.3f} to {after:.3f}.")
    same, other = _rows_again(place)
    if other:
        case.supports(DECISIVE, f"{other} of {same + other} steps that were made twice had other rows the second time.")
    elif same:
        case.against(DECISIVE, f"All {same} steps that were made twice had the same rows again.")
    else:
        case.lacks("`samples` (which rows came after the resume)")
    return case


def _resume(place: Place) -> Break | None:
    if place.finding.name == "resume_gap" and place.curves.breaks:
        near = [one for one in place.curves.breaks if one.row <= place.seen + 1]
        return near[-1] if near else place.curves.breaks[0]
    return place.resume(_NEAR)


def _rate(place: Place, resumed: Break, case: Case) -> None:
    """The schedule's course over the resume: a step of it changes the rate by no more than the steps before.

    A schedule that begins anew may have a first rate of 0, as the old one had at its end: so the next rows count too.
    """
    row = resumed.row
    earlier, before, after = (place.at("train/lr", row - back) for back in (2, 1, 0))
    before = resumed.evidence.get("lr_at_this_step", before)  # what an older start had at the same step
    if before is None or after is None:
        return
    change, usual = abs(after - before), abs(before - earlier) if earlier is not None else 0.0
    soon = max(place.values("train/lr", range(row, min(row + 3, len(place.curves)))), default=after)
    if change > 0.1 * max(before, after) and change > 5 * usual:
        case.supports(STRONG, f"The rate jumped from {short(before)} to {short(after)}: the schedule began anew.")
    elif earlier is not None and before <= earlier and soon > 2 * max(before, earlier):
        case.supports(STRONG, f"The rate fell to {short(before)} and is {short(soon)} soon after: a new schedule.")
    else:
        case.against(FAIR, f"The rate went on, from {short(before)} to {short(after)}.")


def _moments(place: Place, resumed: Break, case: Case) -> None:
    name = "train/exp_avg_norm"
    before = place.values(name, range(max(resumed.row - 200, 0), resumed.row))
    after = place.values(name, range(resumed.row, min(resumed.row + 5, len(place.curves))))
    if before and after and after[0] < 0.3 * before[-1]:
        case.supports(STRONG, f"The norm of the first moments fell from {short(before[-1])} to {short(after[0])}.")


def _checkpoint(place: Place, step: int, case: Case) -> None:
    """The checkpoint itself, where it still lies there."""
    folder = place.curves.checkpoints.get(step)
    if folder is None or not Path(folder).is_dir():
        return
    if any(any(Path(folder).glob(name)) for name in _STATES):
        case.against(FAIR, f"{Path(folder).name} holds an optimizer's state now.")
    else:
        case.supports(DECISIVE, f"{Path(folder).name}, from which it resumed, holds no optimizer's state.")


def _overlaps(place: Place, resumed: Break, case: Case) -> None:
    """Steps that were made twice: the difference of their losses against its own standard error."""
    apart = [after - before for _, before, after in place.curves.overlaps if math.isfinite(after - before)]
    if len(apart) < 8:
        return
    mean = sum(apart) / len(apart)
    error = math.sqrt(sum((one - mean) ** 2 for one in apart) / (len(apart) - 1) / len(apart))
    if mean > 4 * max(error, 1e-9) and mean > 0.02:
        text = f"The same {len(apart)} steps had a loss {short(mean)} higher than before the resume"
        case.supports(FAIR, f"{text} (median {short(middle(apart))}, standard error {short(error)}).")
    elif abs(mean) <= max(2 * error, 0.02):
        case.against(STRONG, f"The same {len(apart)} steps had the same loss as before ({mean:+.3f} on average).")


def _rows_again(place: Place) -> tuple[int, int]:
    """Steps that stand in two segments of `samples.jsonl`: how many with the same rows, how many with others."""
    file = sample_files(place.record).get(0) if place.record is not None else None
    if file is None:
        return 0, 0
    seen: dict[int, list] = {}
    same = other = 0
    for row in read_rows(file)[0]:
        hashes = [sample.get("hash") for batch in row.get("micro_batches", []) for sample in batch]
        if row.get("step") in seen and not row.get("incomplete"):
            same, other = (same + 1, other) if seen[row["step"]] == hashes else (same, other + 1)
        seen[row.get("step")] = hashes
    return same, other


def _epoch(place: Place, row: int) -> float | None:
    return place.at("train/epoch", row) if row >= 0 else None


def _callbacks(place: Place, step: int) -> list[str]:
    starts = [e for e in place.curves.events if e.get("kind") == "resume" and abs(e["step"] - step) <= 2]
    listed = (starts[-1].get("evidence") or {}).get("callbacks") if starts else None
    return listed if isinstance(listed, list) else str(listed or "").split(", ")
