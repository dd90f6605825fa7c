"""Where the time went when training became slower, or when it always goes to something else than training."""

import math
from dataclasses import dataclass

from ... import texts
from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import middle, short
from .place import Place

#: part of a step -> its cause; what it is in words and what to do about it stand in the texts under its name
_PARTS = {
    "time/data_wait_s": "data_wait",
    "time/checkpoint_s": "checkpoint_saving",
    "time/eval_s": "evaluation",
    "time/other_s": "other_callback",
    "time/callbacks_s": "our_callbacks",
    "time/communication_s": "ranks",
    "time/optimizer_s": "optimizer_step",
    "time/forward_s": "compute",
    "time/backward_s": "compute",
    "time/h2d_s": "data_wait",
}
_STEP = "time/step_s"
COMPUTING = ("time/forward_s", "time/backward_s", "time/optimizer_s")
#: additional time of this share of a usual step is a slowdown (`ThroughputDropDetector`)
_SLOWER = 0.5
#: so many rows are enough for what is usual; so many for what is slow (a slow block has six)
_LEAST, _LEAST_SLOW = 8, 6


@dataclass(frozen=True)
class Spent:
    """Seconds per step, over the slow rows and over the rows before (None where there are none)."""

    now: float
    before: float | None

    @property
    def more(self) -> float:
        return self.now - (self.before or 0.0)


def slowdown(place: Place) -> list[Case]:
    """One candidate for each part of a step that grew, and those that hide inside the compute."""
    whole = _spent(place, _STEP)
    if whole is None:
        return _without_parts(place)
    beside = _beside_computing(place, whole)
    cases: dict[str, Case] = {}
    for name, cause in _PARTS.items():
        part = _spent(place, name)
        if part is None:
            continue
        case = cases.setdefault(cause, Case(cause, texts.text(f"causes.cure.{name}")))
        words = texts.text(f"causes.part.{name}")
        if beside is None or name in COMPUTING:
            _weigh(case, words, part, whole, texts.text("causes.slow.additional"))
        else:
            _weigh(case, words, part, beside, texts.text("causes.slow.beside"))
    storage(place, cases)
    _compute(place, cases)
    return list(cases.values())


def _weigh(case: Case, words: str, part: Spent, whole: Spent, more: str) -> None:
    """What part of the additional time (`more` in words) it made up; in a run that never was faster, of each step."""
    grown = whole.before is not None and whole.more > 0.2 * whole.before
    share = part.more / whole.more if grown else part.now / whole.now
    if case.name == "compute" and not grown:
        return  # that is what the time is for
    was = texts.text("causes.slow.was", before=short(part.before)) if grown and part.before is not None else ""
    kind = more if grown else texts.text("causes.slow.each_step")
    words = words[0].upper() + words[1:]
    text = texts.text("causes.slow.part", words=words, now=short(part.now), was=was, share=share, kind=kind)
    decisive, strong, fair = (0.5, 0.35, 0.2) if grown else (0.4, 0.2, 0.1)
    if share >= strong:
        case.supports(DECISIVE if share >= decisive and case.name != "compute" else STRONG, text)
    elif share >= fair:
        case.supports(FAIR, text)


def storage(place: Place, cases: dict[str, Case]) -> None:
    """Something else than checkpoints writes to the disk all the time, and the step waits for it."""
    writes = _spent(place, "system/disk_write_mib_s")
    if writes is None:
        return
    case = cases.setdefault("storage", Case("storage", texts.text("causes.slow.next_storage")))
    saves, others = (cases[name].score if name in cases else 0.0 for name in ("checkpoint_saving", "other_callback"))
    if writes.now >= 10 and (writes.before is None or writes.now >= 3 * writes.before):
        was = "" if writes.before is None else texts.text("causes.slow.wrote_before", before=short(writes.before))
        case.supports(FAIR, texts.text("causes.slow.wrote", now=short(writes.now), was=was))
        if others >= STRONG and others >= saves:
            text = texts.text("causes.slow.others")
            case.supports(DECISIVE, texts.text("causes.slow.the_disk", text=text))
        elif saves >= FAIR:
            case.against(FAIR, texts.text("causes.slow.checkpoints"))
    elif writes.now < 1:
        case.against(STRONG, texts.text("causes.slow.not_written", now=short(writes.now)))


def _compute(place: Place, cases: dict[str, Case]) -> None:
    """Longer batches, or a card that is slower: both look like more compute."""
    tokens = _spent(place, "data/tokens")
    case = Case("longer_batches", texts.text("causes.slow.next_longer"))
    if tokens is None:
        case.lacks(texts.text("causes.slow.lacks_tokens"))
    elif tokens.before and tokens.now >= 1.3 * tokens.before:
        text = texts.text("causes.slow.longer", now=short(tokens.now), before=short(tokens.before))
        case.supports(STRONG if "compute" in cases and cases["compute"].score >= FAIR else FAIR, text)
    else:
        case.against(FAIR, texts.text("causes.slow.not_longer", now=short(tokens.now)))
    cases["longer_batches"] = case
    busy = Case("other_process", texts.text("causes.slow.next_other"))
    found = _spent(place, "system/gpu_other_processes")
    if found is not None and found.now >= 1 and found.now > (found.before or 0):
        busy.supports(STRONG, texts.text("causes.slow.others_on_card", now=found.now, before=found.before or 0))
    host, own = _spent(place, "system/host_cpu_percent"), _spent(place, "system/cpu_percent")
    known = host is not None and own is not None and host.before is not None and own.before is not None
    if (share := without_cpu(place)) is not None:
        words = {"now": own.now, "before": own.before, "host": host.now, "share": share}
        busy.supports(STRONG, texts.text("causes.slow.no_cpu", **words))
    elif known and host.now >= 90 and host.now > host.before + 20 and own.now < 1.1 * own.before:
        text = texts.text("causes.slow.node_busy", now=host.now, before=host.before)
        busy.supports(STRONG, text)
    cases["other_process"] = busy
    slow = Case("throttled", texts.text("causes.slow.next_throttled"))
    throttled, clock = _spent(place, "system/gpu_throttled"), _spent(place, "system/sm_clock_mhz")
    if throttled is not None and throttled.now > 0.2:
        slow.supports(DECISIVE, texts.text("causes.slow.throttled", share=throttled.now))
    if clock is not None and clock.before and clock.now < 0.85 * clock.before:
        slow.supports(STRONG, texts.text("causes.slow.clock", before=clock.before, now=clock.now))
    cases["throttled"] = slow
    compute = cases.get("compute")
    if compute is not None and any(one.score >= FAIR for one in (case, busy, slow)):
        compute.against(STRONG, texts.text("causes.slow.known"))
    elif compute is not None:
        compute.next = texts.text("causes.slow.next_compute")


def without_cpu(place: Place) -> float | None:
    """The share of the additional time of computing in which others had the CPUs; None where it is not that.

    Computing took 1.5 times as long and more, and no CPU of the node was free (90 % and more were busy). Half of that
    additional time and more was no work: CPU seconds of the training's processes, on as many CPUs as they had before.

    Where a card computes, the CPU has less to do as well when the card is slower: there the node must have become
    fuller too, by 20 points.
    """
    whole, own, host = (_spent(place, name) for name in (_STEP, "system/cpu_percent", "system/host_cpu_percent"))
    if any(one is None or not one.before for one in (whole, own, host)) or host.now < 90:
        return None
    if place.curves.has("system/gpu_util") and host.now < host.before + 20:
        return None
    computing = _computing(place)
    if computing.more <= 0 or computing.more < _SLOWER * computing.before:
        return None
    worked = (whole.now * own.now - whole.before * own.before) / max(own.before, 100.0)
    still = 1.0 - max(worked, 0.0) / computing.more
    return still if still >= 0.5 else None


def waits_longer(place: Place) -> bool:
    """Where others had the CPUs: does the additional time beside computing make a slowdown by itself?

    That time stretches as computing does (callbacks take a CPU too): what is more than this counts.
    """
    whole, computing = _spent(place, _STEP), _computing(place)
    waited, before = whole.now - computing.now, whole.before - computing.before
    return waited - before * computing.now / computing.before >= _SLOWER * whole.before


def _computing(place: Place) -> Spent:
    """Seconds a step of computing."""
    parts = [part for name in COMPUTING if (part := _spent(place, name)) is not None]
    return Spent(sum(part.now for part in parts), sum(part.before or 0.0 for part in parts))


def _beside_computing(place: Place, whole: Spent) -> Spent | None:
    """A step without the additional time of computing, where others had the CPUs and what is left is slow as well."""
    if without_cpu(place) is None or not waits_longer(place):
        return None
    return Spent(whole.now - _computing(place).more, whole.before)


def _without_parts(place: Place) -> list[Case]:
    """A log without the parts of a step: only what falls into its pauses can be told."""
    found = []
    for name, every in (("evaluation", "eval_steps"), ("checkpoint_saving", "save_steps")):
        case = Case(name, texts.text("causes.slow.next_every", every=every))
        period = place.curves.settings.get(every)
        if isinstance(period, (int, float)) and 1 <= period <= max(4 * place.curves.logging_steps, 4):
            case.supports(STRONG, texts.text(f"causes.slow.each_row.{every}", period=period))
        case.lacks(texts.text("causes.slow.lacks_parts"))
        found.append(case)
    case = Case("longer_batches")
    case.lacks(texts.text("causes.slow.lacks_tokens"))
    system = Case("other_process")
    system.lacks(texts.text("causes.slow.lacks_system"))
    during, before = (place.values("num_input_tokens_seen", rows) for rows in (place.during, place.before))
    if len(during) >= 2 and len(before) >= 2:
        now, was = ((side[-1] - side[0]) / (len(side) - 1) for side in (during, before))
        if was > 0:
            text = texts.text("causes.slow.tokens_a_row", now=short(now), was=short(was))
            case.supports(STRONG, text) if now >= 1.3 * was else case.against(WEAK, text)
    return [*found, case, system]


def _spent(place: Place, name: str) -> Spent | None:
    """Medians over the slow rows (without the first, which holds the start) and over the usual rows before."""
    now = place.values(name, _nearer(place, place.during, slow=True))
    if not now:
        return None
    before = place.values(name, _nearer(place, place.before, slow=False))
    return Spent(middle(now), middle(before) if len(before) >= _LEAST else None)


def _nearer(place: Place, rows: range, slow: bool) -> list[int]:
    """Those whose time is nearer to the slow one than to the usual one, or the others; all, where that is too few."""
    rows = [row for row in rows if row > 0]
    usual, now = (place.finding.evidence.get(name) for name in ("usual", "seconds_per_step"))
    if not usual or not now:
        return rows
    border = math.sqrt(usual * now)
    found = [row for row in rows if (seconds := place.at(_STEP, row)) is not None and (seconds >= border) == slow]
    return found if len(found) >= (_LEAST_SLOW if slow else _LEAST) else rows
