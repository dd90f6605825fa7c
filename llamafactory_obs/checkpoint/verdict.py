"""What a checkpoint is good for, by its parts."""

from dataclasses import dataclass, field

from ..texts import text
from .loading import Loaded
from .part import BROKEN, DOUBTFUL, GOOD, MISSING, STALE, Part
from .weights import Weights

EXACT, WARM, SERVES, DAMAGED = "resumes exactly", "warm start only", "serves", "broken"
#: what the Trainer reads when it resumes; without the first two it goes on in silence
_RESTORED = ("optimizer", "scheduler", "scaler", "rng", "data")


@dataclass
class Verdict:
    """The judgement of one checkpoint.

    Attributes:
        verdict: resumes exactly | warm start only | serves | broken.
        resumes: the Trainer goes on from it; what it then lacks is in `lost`.
        serves: a model can be loaded from it for inference.
        lost: names of the parts that a resume begins anew.
        grave: one of them changes the course of training; without the RNG state it is only not bit-exact.
        reasons: one line each, the file's name in it.
        notes: one line each: worth knowing, and no harm.
    """

    verdict: str
    resumes: bool
    serves: bool
    lost: list[str] = field(default_factory=list)
    grave: bool = False
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(weights: Weights, parts: list[Part], loaded: Loaded | None, final: bool = False) -> Verdict:
    """Judge one checkpoint.

    Args:
        weights: what was found of the weights; their part is among `parts`.
        parts: all parts.
        loaded: what came of loading it; None where that was not tried.
        final: a final model: nothing of a resume is asked.
    """
    failure = load_failure(weights, loaded)
    damaged = [part for part in parts if part.state in (BROKEN, STALE)]
    absent = [part for part in parts if part.state == MISSING]
    by_name = {part.name: part for part in parts}
    notes = [*weights.notes, *(part.why for part in parts if part.state == DOUBTFUL)]
    if weights.kind in ("adapter", "full"):  # the Trainer writes neither beside shards
        notes += [part.why for part in absent if part.name in ("tokenizer", "training_args") and not final]
    notes += loaded.notes if loaded is not None else []
    reasons = [part.why for part in damaged] + ([failure] if failure else [])

    serves = weights.kind in ("adapter", "full") and weights.part.state == GOOD and not failure
    serves = serves and by_name["tokenizer"].state != BROKEN
    if final:
        return Verdict(SERVES if serves and not reasons else DAMAGED, False, serves, reasons=reasons, notes=notes)

    state = by_name["trainer_state"]
    has_weights = weights.part.state == GOOD and not failure
    fatal = [part for part in damaged if part.name in (*_RESTORED, "adapter", "trainer_state")]
    resumes = has_weights and state.state == GOOD and not fatal
    lost = [part.name for part in absent if part.name in _RESTORED]
    if {"optimizer", "scheduler"} & set(lost):  # the Trainer loads both or neither
        lost = [*dict.fromkeys(["optimizer", "scheduler", *lost])]
    if state.state == MISSING or weights.part.state == MISSING:
        cut_off = any(part.state == GOOD for part in parts if part.name in _RESTORED)
        missing = [part for part in (weights.part, state) if part.state == MISSING]
        reasons += [part.why + (text("checkpoint.judged.cut_off") if cut_off else "") for part in missing]
        verdict = SERVES if serves and not cut_off and not damaged else DAMAGED
    elif reasons:
        verdict = DAMAGED
    else:
        verdict = WARM if lost else EXACT
        reasons = [part.why for part in absent if part.name in _RESTORED]
        if "optimizer" in lost and by_name["optimizer"].state != MISSING:
            reasons.append(text("checkpoint.judged.no_scheduler"))
        elif "scheduler" in lost and "scheduler" in by_name and by_name["scheduler"].state != MISSING:
            reasons.append(text("checkpoint.judged.no_optimizer"))
    grave = bool(set(lost) - {"rng"})
    return Verdict(verdict, resumes, serves, lost, grave, list(dict.fromkeys(reasons)), list(dict.fromkeys(notes)))


def load_failure(weights: Weights, loaded: Loaded | None) -> str:
    """What loading says against the weights; "" where it says nothing, or where it says nothing of them."""
    file = weights.part.file
    if loaded is None or (not loaded.loaded and loaded.stage in ("base", "process")):
        return text("checkpoint.judged.doubt", file=file, why=weights.doubt) if weights.doubt else ""
    if not loaded.loaded:
        return text("checkpoint.judged.why", file=file, why=loaded.why)
    if loaded.missing_count:
        why = text("checkpoint.judged.lacks", file=file, count=loaded.missing_count, tensor=loaded.missing[0])
        if loaded.unexpected_count:
            why += text("checkpoint.judged.no_place", count=loaded.unexpected_count, tensor=loaded.unexpected[0])
        return why
    if loaded.unexpected_count and weights.kind == "adapter":
        return text(
            "checkpoint.judged.not_in_base", file=file, count=loaded.unexpected_count, tensor=loaded.unexpected[0]
        )
    if loaded.nonfinite:
        return text("checkpoint.judged.logits", file=file, bad=loaded.nonfinite, logits=loaded.logits)
    if loaded.spread == 0:
        return text("checkpoint.judged.one_number", file=file, logits=loaded.logits)
    return ""
