"""Does the anomaly come with the data? What the comparison says for it and against it, and what to do."""

import math

from .ordinary import FEWEST
from .rebuilt import DATA_CHANGED, LABELS_CHANGED, LABELS_UNKNOWN, NOT_FOUND, names_of
from .report import DATA, NOT_DATA, UNCLEAR, Report

#: the ordinary batches' loss on these weights, over the recorded one: beyond it these weights are another model
_FAR = 1.5
#: and so many nats at least: a loss of 0.01 is soon half as much again
_FAR_NATS = 0.1
_WORDS = {"loss": "loss", "grad_norm": "gradient norm", "altered_ratio": "share of labels that are not their token"}
_HINTS = {"tokens": "tokens", "supervised_ratio": "share of tokens in the loss", "longest": "longest sample"}


def decide(report: Report, ran: bool, why_not: str) -> None:
    """Fill in verdict, title, evidence and advice.

    Args:
        ran: batch and ordinary batches were run.
        why_not: why they were not.
    """
    carrying = [name for name in _WORDS if name in report.compared and report.compared[name].out]
    for name, word in _WORDS.items():
        if name in report.compared and (name != "altered_ratio" or name in carrying):
            where = " on the same weights" if name != "altered_ratio" else ""
            line = f"{word}{where}: {beside(report, name)}"
            (report.for_data if name in carrying else report.against_data).append(line)
    for name, word in _HINTS.items():
        if name in report.compared and report.compared[name].out:
            report.for_data.append(f"{word}: {beside(report, name)} (a hint, no proof)")
    _labels(report)
    _carriers(report)
    _recorded(report)
    doubt = _doubt(report, ran, why_not, carrying)
    if doubt:
        report.verdict, report.title = UNCLEAR, f"UNCLEAR: {doubt[0]}"
        report.advice = doubt[1]
    elif carrying:
        report.verdict = DATA
        where = " on the same weights" if carrying != ["altered_ratio"] else ""
        are = "is" if len(carrying) == 1 else "are"
        words = _joined([_WORDS[name] for name in carrying])
        report.title = f"DATA: the {words} of step {report.step}'s batch {are} out of the ordinary{where}"
        report.advice = _repair(report)
    else:
        report.verdict = NOT_DATA
        report.title = f"NOT THE DATA: the batch of step {report.step} is an ordinary one on these weights"
        report.advice = (
            "look at what else was there at this step: learning rate and its schedule, precision (fp16 scale),"
            " optimizer state, one rank that differs; `layer_norms` tells in which layer it begins"
        )


def beside(report: Report, name: str) -> str:
    """One number beside the others: `8.12 against 2.31 (2.02 to 2.55) of 8 batches, z 31`."""
    judged = report.compared[name]
    z = f"z {judged.z:.1f}" if math.isfinite(judged.z) else "not finite"
    span = f"{number(judged.low)} to {number(judged.high)}"
    return f"{number(judged.value)} against {number(judged.median)} ({span}), {z}"


def number(value: float | None) -> str:
    """Four digits; whole numbers in full."""
    if value is None:
        return "-"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _joined(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _labels(report: Report) -> None:
    count = report.statuses.get(LABELS_CHANGED, 0) + report.statuses.get(LABELS_UNKNOWN, 0)
    if count:
        report.for_data.append(
            f"{_samples(count)} trained on other labels than the data set gives: changed on the way to the model"
        )


def _carriers(report: Report) -> None:
    carriers = report.carriers
    if carriers is None or not carriers.found:
        return
    rest = f"loss {number(carriers.loss)}, gradient norm {number(carriers.grad_norm)}"
    names = f"{_samples(len(carriers.found))} of {len(carriers.parts)}"
    if carriers.ordinary_without:
        report.for_data.append(f"without {names} the batch is ordinary: {rest}")
    elif carriers.ordinary_without is None:
        report.for_data.append(f"{names} stand out; what is left is too little to be compared")
    else:
        report.for_data.append(f"{names} stand out, but without them it still is not ordinary: {rest}")


def _recorded(report: Report) -> None:
    """What the training itself saw at this step."""
    _again(report)
    known = [name for name in ("recorded_loss", "recorded_grad_norm") if name in report.compared]
    out = [name for name in known if report.compared[name].out]
    for name in out:
        word = "loss" if name == "recorded_loss" else "gradient norm"
        line = f"the training's own {word}: {beside(report, name)}"
        same = name.removeprefix("recorded_")
        if same in report.compared and report.compared[same].out:
            report.for_data.append(f"{line}; this batch brings it back on other weights")
        else:
            report.against_data.append(f"{line}; this batch does not bring it back")
    if known and not out:
        report.limits.append(f"by the record nothing was out of the ordinary at step {report.step} itself")


def _again(report: Report) -> None:
    """On the very weights of the step the loss must come out again, where neither dropout nor anything else differs."""
    here, then = report.figures.loss, report.figures.recorded_loss
    if report.weights is None or report.weights.step != report.step - 1 or here is None or then is None:
        return
    if math.isclose(here, then, rel_tol=0.01):
        report.rebuilt_loss = f"the training's own loss, {number(then)}, comes out again: the batch is the one it was"
    else:
        report.rebuilt_loss = (
            f"the training's own loss was {number(then)}, here it is {number(here)} on the same weights: dropout,"
            " another precision, or something that acted on the batch after it was logged"
        )


def _doubt(report: Report, ran: bool, why_not: str, carrying: list[str]) -> tuple[str, str] | None:
    """Why nothing can be said, and what to do about it."""
    statuses = report.statuses
    lost = sum(statuses.get(one, 0) for one in (DATA_CHANGED, NOT_FOUND))
    total = len(report.batch.samples)
    if lost == total:
        cause = report.changes[0] if report.changes else "no reason is on record"
        return f"no sample of the batch is in the data any more: {cause}", _BACK
    if len(report.ordinary) < FEWEST:
        return (
            f"cannot judge: only {len(report.ordinary)} ordinary batches could be rebuilt, {FEWEST} are needed",
            "replay a step with more recorded steps around it" if not lost else _BACK,
        )
    seen = [report.compared[name].out for name in ("recorded_loss", "recorded_grad_norm") if name in report.compared]
    if carrying == ["grad_norm"] and seen and not any(seen):
        return (
            f"the gradient norm of this batch is high on these weights ({beside(report, 'grad_norm')}), but its loss is"
            " not, and the training itself saw nothing at this step",
            "nothing, if this step is not the one you worry about; else another checkpoint: --checkpoint N",
        )
    if carrying:
        return None
    if not ran:
        return why_not, "look at its rows: --show"
    if "loss" not in report.compared:
        return "these weights give no finite loss on ordinary batches either", "take an earlier one: --checkpoint N"
    if lost:
        return f"{lost} of {total} samples are not in the data any more; the others are ordinary", _BACK
    if statuses.get(LABELS_UNKNOWN):
        return (
            f"{_samples(statuses[LABELS_UNKNOWN])} trained on other labels, which the log does not hold",
            "look for what changes labels between the data set and the model: a collator, a callback, a trainer",
        )
    return _far(report)


_BACK = "bring the data back as it was in the run (--override dataset_dir=PLACE), and replay again"


def _far(report: Report) -> tuple[str, str] | None:
    """Ordinary on weights that are another model says little."""
    weights = report.weights
    if weights.step is not None and weights.step >= report.step:
        return (
            f"ordinary, but on weights that have learned from it ({weights.name})",
            "take a checkpoint from before the step, if there is one: --checkpoint N",
        )
    pairs = [one for one in report.ordinary if one.recorded_loss is not None and one.loss is not None]
    after = [one for one in pairs if weights.step is None or one.step > weights.step]
    used = sorted((one.loss, one.recorded_loss) for one in (after if len(after) >= 2 else pairs))
    if not used:
        return None
    loss = sorted(one for one, _ in used)[len(used) // 2]
    recorded = sorted(one for _, one in used)[len(used) // 2]
    ratio = max(loss, 1e-9) / max(recorded, 1e-9)
    if max(ratio, 1 / ratio) <= _FAR or abs(loss - recorded) <= _FAR_NATS:
        return None
    return (
        f"ordinary, but on weights far from the run's at that step: ordinary batches have a loss of {number(loss)} here"
        f" and had {number(recorded)} in the run",
        "replay on a checkpoint nearer to the step: --checkpoint N (save_steps decides what there is)",
    )


def _repair(report: Report) -> str:
    carriers = report.carriers
    parts = carriers.found if carriers is not None else []
    found = [part.sample for part in parts]
    names = names_of([one for part in parts for one in part.sources]) or "the samples with altered labels"
    if any(sample.status == LABELS_CHANGED for sample in found or report.batch.samples):
        return (
            f"the data set gives other labels for {names}: look for what changes labels on their way to the model (a"
            " collator, a callback, a patched trainer), not in the data"
        )
    if any(sample.altered for sample in found):
        return f"the tokenized rows hold labels that are not their tokens: {names}; tokenize them again"
    if not found:
        return "no single sample carries it: look at the rows of the whole batch (--show), what they have in common"
    copies = sum(sample.logged.same for sample in found)
    more = f" (their content stands in {copies} more rows)" if copies else ""
    return f"read these rows (--show), then correct them in the data set or take them out: {names}{more}"


def _samples(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"
