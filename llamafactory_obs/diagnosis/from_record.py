"""Findings that no single row shows: they rest on what our record holds beside the curves.

They are made of the whole record, by `judge`; live, the verdict at the end has them.
"""

import math
from dataclasses import replace

from ..detect import Finding
from ..logs.curves import Curves
from .causes.place import Place
from .causes.rate import size_rule
from .causes.slow import waits_longer, without_cpu
from .causes.updates import update_ratios
from .from_events import labels_moved, out_of_memory

#: rows that are looked at, the newest
_ROWS = 5_000
#: part of a step -> what it is
_PARTS = {
    "time/other_s": "callbacks of others, trackers and logging",
    "time/checkpoint_s": "saving checkpoints",
    "time/eval_s": "evaluation",
    "time/data_wait_s": "waiting for data",
    "time/communication_s": "waiting for other ranks",
}


def from_record(curves: Curves, found: list[Finding]) -> list[Finding]:
    """What is to be added to the findings of the detectors."""
    names = {finding.name for finding in found if finding.until is None}
    new = [] if names & {"diverged", "flat", "nan", "inf", "lr_anomaly"} else rate_too_high(curves)
    slow = {finding.name for finding in found if finding.until is None and finding.level != "info"}
    if not slow & {"throughput_drop", "low_gpu_use"}:
        new += time_elsewhere(curves)
    return new + out_of_memory(curves) + labels_moved(curves, found)


def of_the_machine(finding: Finding, curves: Curves) -> Finding:
    """A slowdown that other processes made, which had the CPUs: a remark, nothing about this training.

    See `causes.slow.without_cpu`; every other finding comes back as it is.
    """
    if finding.name != "throughput_drop" or finding.level != "warn":
        return finding
    place = Place(curves, finding, ())
    share = without_cpu(place) if finding.evidence.get("usual") else None
    if share is None or waits_longer(place):
        return finding
    since, evidence = finding.evidence["since"], finding.evidence
    lasted = f"since step {since}" if finding.until is None else f"from step {since} to {finding.until}"
    text = (
        f"The machine was busy {lasted}: {evidence['seconds_per_step']:.3g} s per step, {evidence['ratio']:.2g} times "
        f"the usual {evidence['usual']:.3g} s, because other processes had the CPUs. Look what else ran there."
    )
    return replace(finding, level="info", text=text, evidence=evidence | {"without_cpu": round(share, 3)})


def rate_too_high(curves: Curves) -> list[Finding]:
    """A rate that the model does not stand although the loss falls: three signs together.

    - it is 10 times the usual rate for the model's size and more (see `causes.rate.size_rule`);
    - an update changed the weights by 4 % of their norm and more;
    - within 20 rows of where the rate reached its highest the loss rose by 0.3 nats and more from one row to the
      next, twice and more.

    Measured on random Qwen3 of 0.04 to 1M parameters: at good rates (six runs) 0.3 to 3 times, 1.4 to 3.4 % and at most
    one such rise; at 20 times the rate (four runs) 29 to 57 times, 6 to 13 % and 3 to 5.
    """
    if not len(curves):
        return []
    place = Place(curves, Finding("lr_anomaly", "warn", curves.steps[-1], ""), ())
    known = size_rule(place)
    updates = update_ratios(place) if known is not None and known[0] >= 10 * known[1] else []
    if not updates:
        return []
    step, largest = max(updates, key=lambda one: one[1])
    rises = _rises(place, known[0])
    if largest < 0.04 or len(rises) < 2:
        return []
    peak, usual, model = known
    text = (
        f"The learning rate {peak:.3g} is too high: {peak / usual:.2g} times the usual {usual:.2g} for {model}. The "
        f"update of step {step} changed the weights by {largest:.1%} of their norm (about 0.1% is usual), and the loss "
        f"jumped up by 0.3 nats and more {len(rises)} times, first at step {rises[0]}. Next time take a lower rate."
    )
    evidence = {"since": rises[0], "rate": peak, "usual": usual, "update_ratio": largest, "update_step": step}
    evidence |= {"rises": len(rises)}
    limits = "The usual rate is a rule of thumb for Adam; other optimizers take other rates."
    suggest = {"learning_rate": float(f"{usual:.1g}")}
    return [Finding("lr_anomaly", "warn", curves.steps[-1], text, evidence, "keep", suggest, limits, None, 0.8)]


def _rises(place: Place, peak: float) -> list[int]:
    """Steps at which the loss rose by 0.3 nats and more, near the row where the rate reached its highest."""
    rates = place.curves.columns["train/lr"]
    top = next(row for row, rate in enumerate(rates) if rate is not None and rate >= 0.99 * peak)
    rises, before = [], None
    for row in range(max(top - 20, 0), min(top + 21, len(rates))):
        loss = place.at("train/loss", row)
        if loss is not None and before is not None and loss - before >= 0.3:
            rises.append(place.curves.steps[row])
        before = loss if loss is not None else before
    return rises


def time_elsewhere(curves: Curves) -> list[Finding]:
    """A run that never was faster, but spends its time on something else than training: 30 % and more on one part.

    The newest start counts, without its first row: at least 30 rows and 10 s, and the part took a tenth of the step in
    at least 8 rows (one long evaluation is none).
    """
    steps = curves.columns.get("time/step_s")
    if steps is None:
        return []
    first = max((one.row for one in curves.breaks), default=0) + 1
    rows = [row for row in range(max(first, len(curves) - _ROWS), len(curves)) if steps[row]]
    whole = math.fsum(steps[row] for row in rows)
    if len(rows) < 30 or not 10 <= whole < math.inf:
        return []
    found = []
    for name, words in _PARTS.items():
        column = curves.columns.get(name)
        spent = [column[row] or 0.0 for row in rows] if column is not None else []
        share = math.fsum(spent) / whole
        often = sum(part >= 0.1 * steps[row] for part, row in zip(spent, rows, strict=bool(spent)))
        if share >= 0.3 and often >= 8:
            found.append((share, name, words))
    if not found:
        return []
    share, name, words = max(found)
    text = f"{share:.0%} of the time goes to {words}, not to training: {share * whole / len(rows):.3g} of"
    text += f" {whole / len(rows):.3g} s a step since step {curves.steps[rows[0]]}. Do it less often, or elsewhere."
    evidence = {"since": curves.steps[rows[0]], "part": name, "share": round(share, 3), "rows": len(rows)}
    limits = "The parts are those of the first rank's host clock, and of its card where there is one."
    last = curves.steps[-1]
    return [Finding("throughput_drop", "warn", last, text, evidence, "keep", {}, limits, None, 0.8)]
