"""Findings that the record's events and columns name themselves: memory that ran out, labels that moved."""

from ..detect import Finding
from ..detect.moved_labels import MovedLabelsDetector
from ..detect.out_of_memory import says_out_of_memory
from ..logs.curves import Curves

_OVER = "It is over: the run went on after it."
_LIMITS = "The batch is that of the process that ran out; what else was on the card is in the event, where it was seen."
#: an excursion of the loss that begins so many steps around the labels is their doing, and names them as its cause
_NEAR = 3


def out_of_memory(curves: Curves) -> list[Finding]:
    """The last time that memory ran out: an `oom` event of `vram`, else an exception that says so.

    It ends the run ("kill") where nothing came after it. A run that went on, with a smaller batch
    (`auto_find_batch_size`) or resumed, has it behind it.
    """
    said = [event for event in curves.events if _is_out_of_memory(event)]
    event = next((one for one in reversed(said) if one.get("kind") == "oom"), said[-1] if said else None)
    if event is None:
        return []
    step, evidence = event.get("step", 0), event.get("evidence") or {}
    later = any(
        one.get("kind") in ("start", "resume", "retry") and one.get("time", 0) >= event.get("time", 0)
        for one in curves.events
    )
    went_on = later or (len(curves) > 0 and max(curves.steps) > step)
    text = str(event.get("text") or "out of memory")
    text = text[:1].upper() + text[1:].rstrip(".") + "."
    if event.get("kind") != "oom":
        text = f"Memory ran out in step {step + 1}: {text}"
        step += 1  # an exception is noted at the last step that was made
    kept = ("micro_batches", "longest_sequence", "error", "card_gib", "system/reserved_gib", "system/rss_gib")
    seen = {"since": step} | {key.rpartition("/")[2]: evidence[key] for key in kept if evidence.get(key) is not None}
    suggest = event.get("suggest") or {}
    if went_on:
        return [Finding("oom", "info", step, f"{text} {_OVER}", seen, "keep", suggest, _LIMITS, step, 0.9)]
    return [Finding("oom", "error", step, text, seen, "kill", suggest, _LIMITS, None, 0.99)]


def labels_moved(curves: Curves, found: list[Finding]) -> list[Finding]:
    """Steps whose labels are not the tokens at their own positions, also where the loss does not show it.

    Where it does, the finding of the loss says so: its cause names them.
    """
    column = curves.columns.get("data/labels_moved")
    if column is None:
        return []
    detector, open_, new = MovedLabelsDetector(), None, []
    for step, moved in zip(curves.steps, column, strict=True):
        finding = detector.update(step, moved)
        if finding is None:
            continue
        if finding.name == "labels_moved":
            open_ = finding
        elif open_ is not None:
            new.append(_of_labels(open_, finding.evidence["last"]))
            open_ = None
    new += [_of_labels(open_, None)] if open_ is not None else []
    shown = [one.evidence.get("since", one.step) for one in found if one.name in ("spike", "diverged")]
    return [one for one in new if all(abs(one.step - step) > _NEAR for step in shown)]


def _of_labels(finding: Finding, until: int | None) -> Finding:
    evidence = finding.evidence | {"since": finding.step} | ({} if until is None else {"last": until})
    text = f"{finding.text[:1].upper()}{finding.text[1:]}."
    if until is not None:
        text += f" Up to step {until} it was so." if until > finding.step else " It was that step alone."
    text += (
        " Look at what makes the labels: a template, a collator, packing. `llamafactory-obs mask RUN.yaml` shows them."
    )
    return Finding(
        finding.name, finding.level, finding.step, text, evidence, "keep", {}, finding.limits, until, 0.95
    )  # fmt: skip


def _is_out_of_memory(event: dict) -> bool:
    if event.get("kind") == "oom":
        return True
    return event.get("kind") in ("crash", "retry") and says_out_of_memory(str(event.get("text")))
