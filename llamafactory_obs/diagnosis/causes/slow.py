"""Where the time went when training became slower, or when it always goes to something else than training."""

from dataclasses import dataclass

from .evidence import DECISIVE, FAIR, STRONG, WEAK, Case
from .ordinary import middle, short
from .place import Place

#: part of a step -> cause, what it is in words, what to do about it
_PARTS = {
    "time/data_wait_s": ("data_wait", "waiting for data", "dataloader_num_workers: 4; tokenized_path on a local disk."),
    "time/checkpoint_s": (
        "checkpoint_saving",
        "saving checkpoints",
        "Save less often (save_steps), or save_only_model.",
    ),
    "time/eval_s": ("evaluation", "evaluation", "Evaluate less often (eval_steps), or on fewer rows (val_size)."),
    "time/other_s": (
        "other_callback",
        "callbacks of others, trackers, logging",
        "Switch off the callbacks one by one.",
    ),
    "time/callbacks_s": ("our_callbacks", "our own callbacks", "Raise `every` of layer_norms and optimizer."),
    "time/communication_s": ("ranks", "waiting for other ranks", "Look for the slow rank (callback `ranks`)."),
    "time/optimizer_s": ("optimizer_step", "clipping and update", "Look at offloading, and at what else uses the CPU."),
    "time/forward_s": ("compute", "forward passes", ""),
    "time/backward_s": ("compute", "backward passes", ""),
    "time/h2d_s": ("data_wait", "moving batches to the device", "dataloader_pin_memory: true."),
}
_STEP = "time/step_s"


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
    cases: dict[str, Case] = {}
    for name, (cause, words, cure) in _PARTS.items():
        part = _spent(place, name)
        if part is None:
            continue
        case = cases.setdefault(cause, Case(cause, cure))
        _weigh(case, words, part, whole)
    storage(place, cases)
    _compute(place, cases)
    return list(cases.values())


def _weigh(case: Case, words: str, part: Spent, whole: Spent) -> None:
    """What part of the additional time it made up; where the run was never faster, of the whole step."""
    grown = whole.before is not None and whole.more > 0.2 * whole.before
    share = part.more / whole.more if grown else part.now / whole.now
    if case.name == "compute" and not grown:
        return  # that is what the time is for
    was = f" ({short(part.before)} s before)" if grown and part.before is not None else ""
    kind = "of the additional time" if grown else "of each step"
    text = f"{words[0].upper()}{words[1:]}: {short(part.now)} s a step{was}, {share:.0%} {kind}."
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
    case = cases.setdefault("storage", Case("storage", "Write less often, to a local disk, or in another thread."))
    saves, others = (cases[name].score if name in cases else 0.0 for name in ("checkpoint_saving", "other_callback"))
    if writes.now >= 10 and (writes.before is None or writes.now >= 3 * writes.before):
        was = "" if writes.before is None else f" ({short(writes.before)} before)"
        case.supports(FAIR, f"The training's processes wrote {short(writes.now)} MiB/s all the time{was}.")
        if others >= STRONG and others >= saves:
            text = "The time went to callbacks of others, trackers or logging, not to compute: one of them waits"
            case.supports(DECISIVE, f"{text} for the disk.")
        elif saves >= FAIR:
            case.against(FAIR, "What was written are the checkpoints.")
    elif writes.now < 1:
        case.against(STRONG, f"Next to nothing was written: {short(writes.now)} MiB/s.")


def _compute(place: Place, cases: dict[str, Case]) -> None:
    """Longer batches, or a card that is slower: both look like more compute."""
    tokens = _spent(place, "data/tokens")
    case = Case("longer_batches", "group_by_length, packing, or a smaller cutoff_len; else nothing: the work is more.")
    if tokens is None:
        case.lacks("`label_mask` (tokens of each batch)")
    elif tokens.before and tokens.now >= 1.3 * tokens.before:
        text = f"The batches held {short(tokens.now)} tokens, {short(tokens.before)} before."
        case.supports(STRONG if "compute" in cases and cases["compute"].score >= FAIR else FAIR, text)
    else:
        case.against(FAIR, f"The batches were no longer than before ({short(tokens.now)} tokens).")
    cases["longer_batches"] = case
    busy = Case("other_process", "See with nvidia-smi and top what else runs there.")
    found = _spent(place, "system/gpu_other_processes")
    if found is not None and found.now >= 1 and found.now > (found.before or 0):
        busy.supports(STRONG, f"{found.now:.0f} other processes on the card, {found.before or 0:.0f} before.")
    host, own = _spent(place, "system/host_cpu_percent"), _spent(place, "system/cpu_percent")
    known = host is not None and own is not None and host.before is not None and own.before is not None
    if known and host.now >= 90 and host.now > host.before + 20 and own.now < 1.1 * own.before:
        text = f"The node's CPU is at {host.now:.0f}% ({host.before:.0f}% before), and not through this training."
        busy.supports(STRONG, text)
    cases["other_process"] = busy
    slow = Case("throttled", "Cooling and power limit of the card (nvidia-smi -q -d PERFORMANCE).")
    throttled, clock = _spent(place, "system/gpu_throttled"), _spent(place, "system/sm_clock_mhz")
    if throttled is not None and throttled.now > 0.2:
        slow.supports(DECISIVE, f"The card was throttled {throttled.now:.0%} of the time.")
    if clock is not None and clock.before and clock.now < 0.85 * clock.before:
        slow.supports(STRONG, f"The clock fell from {clock.before:.0f} to {clock.now:.0f} MHz.")
    cases["throttled"] = slow
    compute = cases.get("compute")
    if compute is not None and any(one.score >= FAIR for one in (case, busy, slow)):
        compute.against(STRONG, "The reason for it is known, see the other candidates.")
    elif compute is not None:
        compute.next = "Compare with `llamafactory-obs baseline-speed RUN.yaml`; look at clocks and other processes."


def _without_parts(place: Place) -> list[Case]:
    """A log without the parts of a step: only what falls into its pauses can be told."""
    found = []
    for name, every, words in (("evaluation", "eval_steps", "eval"), ("checkpoint_saving", "save_steps", "save")):
        case = Case(name, f"Set {every} higher.")
        period = place.curves.settings.get(every)
        if isinstance(period, (int, float)) and 1 <= period <= max(4 * place.curves.logging_steps, 4):
            case.supports(STRONG, f"{every} is {period:g}: each row holds {words}s.")
        case.lacks("`throughput` (the parts of each step)")
        found.append(case)
    case = Case("longer_batches")
    case.lacks("`label_mask` (tokens of each batch)")
    system = Case("other_process")
    system.lacks("`system` (CPU, disk, card)")
    during, before = (place.values("num_input_tokens_seen", rows) for rows in (place.during, place.before))
    if len(during) >= 2 and len(before) >= 2:
        now, was = ((side[-1] - side[0]) / (len(side) - 1) for side in (during, before))
        if was > 0:
            text = f"{short(now)} tokens a row, {short(was)} before."
            case.supports(STRONG, text) if now >= 1.3 * was else case.against(WEAK, text)
    return [*found, case, system]


def _spent(place: Place, name: str) -> Spent | None:
    """Medians over the slow rows (without the first, which holds the start) and over the rows before."""
    now = place.values(name, [row for row in place.during if row > 0])
    if not now:
        return None
    before = place.values(name, [row for row in place.before if row > 0])
    return Spent(middle(now), middle(before) if len(before) >= 8 else None)
