"""What made a finding: candidates with the evidence for and against each, from one log."""

from ...detect import Finding
from ...logs.curves import Curves
from ..result import Cause
from .batch import special_batch
from .borders import accumulation_boundary, epoch_border
from .dead import (
    all_labels_masked,
    bad_batch,
    bad_gradient,
    broken_weights,
    filtered_nan,
    grew_until,
    memorised,
)
from .evidence import Case, rank
from .flat import always_clipped, labels_masked, lr_too_small, nothing_trainable, rate_broke_it
from .jitter import noisy_rate, small_batches
from .many_ranks import one_rank_alone, ranks
from .memory import growth
from .moments import optimizer_moments
from .out_of_memory import ran_out
from .place import Place
from .precision import overflow
from .rate import lr_change, lr_too_high
from .resumed import data_order_lost, optimizer_state_lost
from .slow import slowdown

_OF_THE_LOSS = ("train/loss", "train/grad_norm")
#: from so many steps with moved labels on they are no batch's own fault
_MANY_BATCHES = 8


def causes(curves: Curves, finding: Finding) -> list[Cause]:
    """The candidates for one finding, the likeliest first.

    `unknown` leads where none stands out; its `missing` says what to log. A finding that needs no explanation
    (a healthy run, `stairs`, `overfit`, `plateau`) has none.

    Args:
        curves: the log in which the finding was made; live, what is known of the run so far.
        finding: its `step`, `until`, and `since` in the evidence, say which rows are looked at.
    """
    judge = _JUDGES.get(finding.name)
    enough = len(curves) > 0 or finding.name == "oom"  # which most often ends the very first step
    return rank(judge(curves, finding)) if judge is not None and enough else []


def _of_a_spike(curves: Curves, finding: Finding, series: tuple[str, ...] = _OF_THE_LOSS) -> list[Case]:
    place = Place(curves, finding, series)
    batch = special_batch(place)
    one_rank_alone(place, batch)
    return [
        batch,
        lr_change(place),
        lr_too_high(place),
        accumulation_boundary(place),
        epoch_border(place),
        overflow(place),
        optimizer_state_lost(place),
        data_order_lost(place),
        ranks(place),
        optimizer_moments(place),
    ]


def _of_a_nan(curves: Curves, finding: Finding) -> list[Case]:
    place = Place(curves, finding, ())
    return [
        all_labels_masked(place),
        bad_batch(place),
        grew_until(place, lr_too_high(place)),
        lr_change(place),
        overflow(place),
        bad_gradient(place),
        broken_weights(place),
        optimizer_state_lost(place),
    ]


def _of_zeros(curves: Curves, finding: Finding) -> list[Case]:
    place = Place(curves, finding, ())
    return [filtered_nan(place), all_labels_masked(place), memorised(place)]


def _of_a_flat_run(curves: Curves, finding: Finding) -> list[Case]:
    place = Place(curves, finding, ())
    return [
        nothing_trainable(place),
        labels_masked(place),
        lr_too_small(place),
        rate_broke_it(place),
        always_clipped(place),
    ]


def _of_jitter(curves: Curves, finding: Finding) -> list[Case]:
    return [noisy_rate(Place(curves, finding, ())), small_batches(Place(curves, finding, ()))]


def _of_the_norm(curves: Curves, finding: Finding) -> list[Case]:
    return _of_a_spike(curves, finding, series=_OF_THE_LOSS[::-1])


def _of_a_resume(curves: Curves, finding: Finding) -> list[Case]:
    if not curves.breaks:
        return _of_a_spike(curves, finding)
    place = Place(curves, finding, ())
    return [optimizer_state_lost(place), data_order_lost(place), special_batch(place)]


def _of_a_slowdown(curves: Curves, finding: Finding) -> list[Case]:
    return slowdown(Place(curves, finding, ()))


def _of_memory(curves: Curves, finding: Finding) -> list[Case]:
    return growth(Place(curves, finding, ()))


def _of_memory_that_ran_out(curves: Curves, finding: Finding) -> list[Case]:
    return ran_out(Place(curves, finding, ()))


def _of_labels(curves: Curves, finding: Finding) -> list[Case]:
    """One batch, or what makes the labels of all of them."""
    steps = curves.points("data/labels_moved")[1]
    place = Place(curves, finding, ())
    return [labels_masked(place) if sum(map(bool, steps)) >= _MANY_BATCHES else special_batch(place)]


def _of_the_rate(curves: Curves, finding: Finding) -> list[Case]:
    place = Place(curves, finding, ())
    return [lr_change(place), noisy_rate(place), optimizer_state_lost(place)]


#: finding -> its candidates
_JUDGES = {
    "spike": _of_a_spike,
    "diverged": _of_a_spike,
    "grad_norm_spike": _of_the_norm,
    "jitter": _of_jitter,
    "nan": _of_a_nan,
    "inf": _of_a_nan,
    "skipped_step": _of_a_nan,
    "zero_loss": _of_zeros,
    "flat": _of_a_flat_run,
    "stalled": _of_a_flat_run,
    "resume_gap": _of_a_resume,
    "throughput_drop": _of_a_slowdown,
    "low_gpu_use": _of_a_slowdown,
    "vram_growth": _of_memory,
    "oom": _of_memory_that_ran_out,
    "labels_moved": _of_labels,
    "lr_anomaly": _of_the_rate,
}
