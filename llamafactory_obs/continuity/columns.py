"""Each column of a resume by itself: is it the same again, within the noise, does it go on, or is it another?"""

import math
from statistics import median

from ..detect.numbers import plain
from ..detect.resume_gap import LEAST, ROWS, Row, epoch_gap, level_gap, noise_of, norm_levels, rate_gap, row
from ..logs.names import EPOCH, LOSS, LR, NORM
from ..logs.resumed import Resumed
from .said import CLOSE, DIFFERS, EQUAL, GOES_ON, UNKNOWN, Column, Said
from .twice import ROUNDING, Twice, twice

#: two starts that see the same samples differ by less than this part of the noise from step to step (root mean square);
#: with other samples they differ by 1.4 of it
_OF_THE_NOISE = 0.5
#: with the same samples and other random numbers by 1.4 of it at most (all noise is theirs), and 3 standard errors of a
#: root mean square of so few steps
_REDRAWN, _REDRAWN_ERRORS = math.sqrt(2), 3
#: without any noise to measure by: part of the value
_PART = 0.1


def rows_of(resumed: Resumed) -> tuple[list[Row], list[Row]]:
    """The rows before and after it, as the detector has them."""
    return tuple(
        [row(one["step"], *(one.get(name) for name in (LOSS, LR, NORM, EPOCH))) for one in part]
        for part in (resumed.before, resumed.after)
    )


def loss(resumed: Resumed, redrawn: bool = False) -> Column:
    """Step by step against the noise; where too few steps were made twice, by its level.

    Args:
        redrawn: the samples are the same, and the random numbers (dropout, NEFTune) are known to be others.
    """
    both = twice(resumed, LOSS)
    if resumed.row_steps > 1 and both.unequal[:1] == [resumed.step]:  # the mean of fewer steps
        both = both.since(resumed.step + 1)
    numbers: dict = {}
    if both.steps:
        noise = _noise(resumed, LOSS)
        status = _status(both, noise)
        redrawn = redrawn and status == DIFFERS and _is_redrawn(both, noise)
        status = CLOSE if redrawn else status
        numbers = {"noise": plain(noise, 3)}
        numbers |= {"loss_before": plain(median(both.before), 4), "loss_after": plain(median(both.after), 4)}
        if status == DIFFERS or len(both.steps) >= LEAST:
            return _of_twice("loss", both, status, numbers, resumed.row_steps, redrawn)
    before, after = rows_of(resumed)
    evidence: dict = {}
    gap = level_gap(before, after, evidence)
    numbers |= evidence
    if gap:
        told = {key: evidence[key] for key in ("loss_before", "loss_after", "standard_errors")}
        return Column("loss", DIFFERS, Said("loss.level", told), *_counts(both), numbers)
    if both.steps:
        return _of_twice("loss", both, status, numbers, resumed.row_steps, redrawn)
    if "standard_errors" not in evidence:
        return Column("loss", UNKNOWN, Said("loss.unknown"))
    told = {key: evidence[key] for key in ("loss_before", "loss_after")}
    return Column("loss", GOES_ON, Said("loss.goes_on", told), numbers=numbers)


def gradient_norm(resumed: Resumed) -> Column:
    """Step by step against the noise, on a log scale; else the levels. Alone it proves nothing."""
    both = twice(resumed, NORM).logs()
    if both.steps:
        noise = _noise(resumed, NORM, math.log)
        exact = twice(resumed, NORM)
        status = EQUAL if not exact.unequal else _status(both, noise)
        return _of_twice("gradient_norm", exact, status, {"noise": plain(noise, 3)}, resumed.row_steps)
    before, after = rows_of(resumed)
    evidence: dict = {}
    norm_levels(before, after[:ROWS], evidence)
    if not evidence or sum(one.norm is not None for one in after) < LEAST:
        return Column("gradient_norm", UNKNOWN, Said("gradient_norm.unknown"))
    low, high = sorted((evidence["grad_norm_before"], evidence["grad_norm_after"]))
    status = DIFFERS if high > 2 * low else GOES_ON
    return Column(
        "gradient_norm", status, Said(f"gradient_norm.{'level' if status == DIFFERS else 'goes_on'}", evidence),
        numbers=evidence,
    )  # fmt: skip


def learning_rate(resumed: Resumed) -> Column:
    """Against the recorded rate of the same step, else against the schedule's own next value."""
    both = twice(resumed, LR)
    if both.steps:
        other = both.beyond(ROUNDING)
        if other:
            before, after = both.at(other[0])
            told = Said("learning_rate.other", {"step": other[0], "before": before, "after": after})
            numbers = {"lr_before": before, "lr_after": after}
            return Column("learning_rate", DIFFERS, told, len(both.steps), len(other), other[0], both.largest, numbers)
        return Column("learning_rate", EQUAL, _same("learning_rate", both, resumed), len(both.steps))
    before, after = rows_of(resumed)
    evidence: dict = {}
    gap = rate_gap(before, after, evidence)
    if "lr_after" not in evidence:
        return Column("learning_rate", UNKNOWN, Said("learning_rate.unknown"))
    status, key = (DIFFERS, "learning_rate.jump") if gap else (GOES_ON, "learning_rate.goes_on")
    return Column("learning_rate", status, Said(key, evidence | {"lr_restarted": bool(gap)}), numbers=evidence)


def epoch(resumed: Resumed) -> Column:
    """The position in the data."""
    both = twice(resumed, EPOCH)
    if both.steps:
        other = both.beyond(ROUNDING)
        if other:
            before, after = both.at(other[0])
            told = Said("epoch.other", {"step": other[0], "before": before, "after": after})
            return Column("epoch", DIFFERS, told, len(both.steps), len(other), other[0], both.largest)
        return Column("epoch", EQUAL, _same("epoch", both, resumed), len(both.steps))
    before, after = rows_of(resumed)
    evidence: dict = {}
    if epoch_gap(before, after, evidence):
        return Column("epoch", DIFFERS, Said("epoch.jump", evidence), numbers=evidence)
    old = [one.epoch for one in before if one.epoch is not None]
    new = [one.epoch for one in after if one.epoch is not None]
    if len(old) < 2 or not new:
        return Column("epoch", UNKNOWN, Said("epoch.unknown"))
    evidence = {"epoch_before": plain(old[-1]), "epoch_after": plain(new[0])}
    return Column("epoch", GOES_ON, Said("epoch.goes_on", evidence), numbers=evidence)


def _of_twice(name: str, both: Twice, status: str, numbers: dict, row_steps: int, redrawn: bool = False) -> Column:
    compared, unequal, first, largest = _counts(both)
    values = {"steps": compared, "unequal": unequal, "row_steps": row_steps}
    if unequal:
        before, after = both.at(first)
        values |= {"first": first, "before": before, "after": after, "largest": largest}
    key = "redrawn" if redrawn else {EQUAL: "equal", CLOSE: "close", DIFFERS: "differs"}[status]
    return Column(name, status, Said(f"{name}.{key}", values), compared, unequal, first, largest, numbers)


def _same(name: str, both: Twice, resumed: Resumed) -> Said:
    return Said(f"{name}.equal", {"steps": len(both.steps), "row_steps": resumed.row_steps})


def _counts(both: Twice) -> tuple[int, int, int | None, float | None]:
    unequal = both.unequal
    return len(both.steps), len(unequal), unequal[0] if unequal else None, both.largest if both.steps else None


def _noise(resumed: Resumed, column: str, scale=float) -> float | None:
    """From step to step, by the rows before it and those that were replaced; None where these are too few."""
    rows = [one[column] for one in (*resumed.before, *resumed.again) if column in one]
    values = [scale(one) for one in rows if math.isfinite(one) and one > 0]
    return noise_of(values) if len(values) > LEAST else None


def _status(both: Twice, noise: float | None) -> str:
    """Equal, close, or another: at once (the first `ROWS` steps) or later, or higher on the average."""
    if not both.unequal:
        return EQUAL
    apart = both.apart
    limit = _OF_THE_NOISE * noise if noise else _PART * max(map(abs, both.before))
    for part in (apart[:ROWS], apart):
        if not math.sqrt(math.fsum(one * one for one in part) / len(part)) <= limit:
            return DIFFERS
    return DIFFERS if _is_higher(apart) else CLOSE


def _is_redrawn(both: Twice, noise: float | None) -> bool:
    """No further apart than two draws of the same random numbers, and not higher on the average."""
    apart = both.apart
    limit = _REDRAWN * (noise or 0.0) * (1 + _REDRAWN_ERRORS / math.sqrt(2 * len(apart)))
    return math.sqrt(math.fsum(one * one for one in apart) / len(apart)) <= limit and not _is_higher(apart)


def _is_higher(apart: list[float]) -> bool:
    """The mean difference against its own standard error; each step has the same samples twice, so it is a fine one."""
    if len(apart) < 8:
        return False
    mean = math.fsum(apart) / len(apart)
    error = math.sqrt(math.fsum((one - mean) ** 2 for one in apart) / (len(apart) - 1) / len(apart))
    return mean > max(4 * error, 0.02)
