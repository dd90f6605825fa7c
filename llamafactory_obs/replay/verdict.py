"""Does the anomaly come with the data? What the comparison says for it and against it, and what to do."""

import math

from .. import texts
from ..texts import text
from .ordinary import FEWEST
from .rebuilt import DATA_CHANGED, LABELS_CHANGED, LABELS_UNKNOWN, NOT_FOUND, names_of
from .report import DATA, NOT_DATA, UNCLEAR, Report

#: the ordinary batches' loss on these weights, over the recorded one: beyond it these weights are another model
_FAR = 1.5
#: and so many nats at least: a loss of 0.01 is soon half as much again
_FAR_NATS = 0.1
#: what is judged; what is only a hint
_JUDGED = ("loss", "grad_norm", "altered_ratio")
_HINTS = ("tokens", "supervised_ratio", "longest")


def decide(report: Report, ran: bool, why_not: str) -> None:
    """Fill in verdict, title, evidence and advice.

    Args:
        ran: batch and ordinary batches were run.
        why_not: why they were not.
    """
    carrying = [name for name in _JUDGED if name in report.compared and report.compared[name].out]
    for name in _JUDGED:
        if name in report.compared and (name != "altered_ratio" or name in carrying):
            key = "replay.said.number" if name == "altered_ratio" else "replay.said.same_weights"
            line = texts.text(key, name=_word(name), beside=beside(report, name))
            (report.for_data if name in carrying else report.against_data).append(line)
    for name in _HINTS:
        if name in report.compared and report.compared[name].out:
            line = texts.text("replay.said.hint", name=_word(name), beside=beside(report, name))
            report.for_data.append(line)
    _labels(report)
    _carriers(report)
    _recorded(report)
    doubt = _doubt(report, ran, why_not, carrying)
    if doubt:
        report.verdict, report.title = UNCLEAR, texts.text("replay.title.unclear", doubt=doubt[0])
        report.advice = doubt[1]
    elif carrying:
        report.verdict = DATA
        key = "replay.title.data" if carrying != ["altered_ratio"] else "replay.title.labels"
        are = "is" if len(carrying) == 1 else "are"
        words = _joined([_word(name) for name in carrying])
        report.title = texts.text(key, words=words, step=report.step, are=are)
        report.advice = _repair(report)
    else:
        report.verdict = NOT_DATA
        report.title = texts.text("replay.title.not_data", step=report.step)
        report.advice = texts.text("replay.advice.look_else")


def _word(name: str) -> str:
    return texts.text(f"replay.word.{name}")


def beside(report: Report, name: str) -> str:
    """One number beside the others: `8.12 against 2.31 (2.02 to 2.55) of 8 batches, z 31`."""
    judged = report.compared[name]
    z = f"z {judged.z:.1f}" if math.isfinite(judged.z) else texts.text("replay.not_finite")
    span = {"low": number(judged.low), "high": number(judged.high)}
    value, median = number(judged.value), number(judged.median)
    return texts.text("replay.against", value=value, median=median, z=z, **span)


def number(value: float | None) -> str:
    """Four digits; whole numbers in full."""
    if value is None:
        return "-"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _joined(words: list[str]) -> str:
    return texts.text("replay.and").join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _labels(report: Report) -> None:
    count = report.statuses.get(LABELS_CHANGED, 0) + report.statuses.get(LABELS_UNKNOWN, 0)
    if count:
        report.for_data.append(text("replay.said.other_labels", samples=_samples(count)))


def _carriers(report: Report) -> None:
    carriers = report.carriers
    if carriers is None or not carriers.found:
        return
    rest = text("replay.said.rest", loss=number(carriers.loss), norm=number(carriers.grad_norm))
    names = text("replay.said.some", samples=_samples(len(carriers.found)), of=len(carriers.parts))
    if carriers.ordinary_without:
        report.for_data.append(text("replay.said.ordinary_without", names=names, rest=rest))
    elif carriers.ordinary_without is None:
        report.for_data.append(text("replay.said.too_little", names=names))
    else:
        report.for_data.append(text("replay.said.still", names=names, rest=rest))


def _recorded(report: Report) -> None:
    """What the training itself saw at this step."""
    _again(report)
    known = [name for name in ("recorded_loss", "recorded_grad_norm") if name in report.compared]
    out = [name for name in known if report.compared[name].out]
    for name in out:
        line = texts.text("replay.said.own", name=_word(name.removeprefix("recorded_")), beside=beside(report, name))
        same = name.removeprefix("recorded_")
        if same in report.compared and report.compared[same].out:
            report.for_data.append(text("replay.said.brings_back", line=line))
        else:
            report.against_data.append(text("replay.said.not_back", line=line))
    if known and not out:
        report.limits.append(text("replay.said.nothing", step=report.step))


def _again(report: Report) -> None:
    """On the very weights of the step the loss must come out again, where neither dropout nor anything else differs."""
    here, then = report.figures.loss, report.figures.recorded_loss
    if report.weights is None or report.weights.step != report.step - 1 or here is None or then is None:
        return
    if math.isclose(here, then, rel_tol=0.01):
        report.rebuilt_loss = text("replay.said.again", then=number(then))
    else:
        report.rebuilt_loss = text("replay.said.other_loss", then=number(then), here=number(here))


def _doubt(report: Report, ran: bool, why_not: str, carrying: list[str]) -> tuple[str, str] | None:
    """Why nothing can be said, and what to do about it."""
    statuses = report.statuses
    lost = sum(statuses.get(one, 0) for one in (DATA_CHANGED, NOT_FOUND))
    total = len(report.batch.samples)
    if lost == total:
        cause = report.changes[0] if report.changes else text("replay.said.no_reason")
        return text("replay.said.no_sample", cause=cause), _BACK
    if len(report.ordinary) < FEWEST:
        return (
            text("replay.said.cannot", count=len(report.ordinary), fewest=FEWEST),
            text("replay.said.more_around") if not lost else _BACK,
        )
    seen = [report.compared[name].out for name in ("recorded_loss", "recorded_grad_norm") if name in report.compared]
    if carrying == ["grad_norm"] and seen and not any(seen):
        return (
            text("replay.said.norm_only", beside=beside(report, "grad_norm")),
            text("replay.said.not_this_step"),
        )
    if carrying:
        return None
    if not ran:
        return why_not, text("replay.said.show_rows")
    if "loss" not in report.compared:
        return text("replay.said.no_finite"), text("replay.said.earlier")
    if lost:
        return text("replay.said.lost", lost=lost, total=total), _BACK
    if statuses.get(LABELS_UNKNOWN):
        return (
            text("replay.said.unknown_labels", samples=_samples(statuses[LABELS_UNKNOWN])),
            text("replay.said.who_changes"),
        )
    return _far(report)


_BACK = text("replay.said.bring_back")


def _far(report: Report) -> tuple[str, str] | None:
    """Ordinary on weights that are another model says little."""
    weights = report.weights
    if weights.step is not None and weights.step >= report.step:
        return (
            text("replay.said.learned", name=weights.name),
            text("replay.said.before"),
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
        text("replay.said.far", here=number(loss), recorded=number(recorded)),
        text("replay.said.nearer"),
    )


def _repair(report: Report) -> str:
    carriers = report.carriers
    parts = carriers.found if carriers is not None else []
    found = [part.sample for part in parts]
    names = names_of([one for part in parts for one in part.sources]) or text("replay.said.altered")
    if any(sample.status == LABELS_CHANGED for sample in found or report.batch.samples):
        return text("replay.said.data_set_gives", names=names)
    if any(sample.altered for sample in found):
        return text("replay.said.tokenized", names=names)
    if not found:
        return text("replay.said.none_carries")
    copies = sum(sample.logged.same for sample in found)
    more = text("replay.said.copies", copies=copies) if copies else ""
    return text("replay.said.read_rows", names=names, more=more)


def _samples(count: int) -> str:
    return texts.text("replay.one_sample" if count == 1 else "replay.some_samples", count=count)
