"""The peak of the card's memory, and whether the longest rows were in it."""

from ... import texts
from ..result import ERROR, FAIL, PASS, SKIPPED, WARN, Check
from .ended import in_order, remedies
from .evidence import Evidence, truth

#: LlamaFactory's collator pads to a multiple of this (`train/sft/workflow.py`, `pad_to_multiple_of`)
_PADDED_TO = 8


def check_peak(run: Evidence, limit_gib: float, margin_gib: float, estimate_gib: float | None) -> Check:
    """What torch reserved at most, and what others hold on the card beside it, leave the margin free.

    Others: used on the card by NVML less what torch has reserved, the most of any step. torch's own CUDA context (a
    few hundred MiB) counts there too, which is right: it is not free.
    """
    name, allowed = "vram_peak", limit_gib - margin_gib
    want = f"<= {allowed:g}"
    peaks = run.finite("system/peak_reserved_gib")
    if not peaks:
        if run.on_cpu:
            return Check(name, SKIPPED, None, want, texts.text("smoke.memory.cpu"))
        text = texts.text("smoke.memory.not_recorded")
        return Check(name, ERROR, None, want, text, texts.text("smoke.memory.vram"))
    used, reserved = run.finite("system/device_used_gib"), run.finite("system/reserved_gib")
    beside = [used[step] - reserved[step] for step in used if step in reserved]
    others = max(0.0, *beside) if beside else None
    own = max(peaks.values())
    value = round(own + (others or 0.0), 3)
    text = texts.text("smoke.memory.peak", value=value, limit_gib=limit_gib, own=own)
    text += texts.text("smoke.memory.others", others=others) if others is not None else ""
    text += _made_by(run, peaks)
    text += texts.text("smoke.memory.estimate", estimate_gib=estimate_gib) if estimate_gib is not None else ""
    if value > allowed:
        fix = _cure(run, value - allowed, others or 0.0)
        text += texts.text("smoke.memory.must", margin=margin_gib, free=limit_gib - value)
        return Check(name, FAIL, value, want, text, fix)
    text += texts.text("smoke.memory.free", free=limit_gib - value)
    if others is None:
        return Check(name, WARN, value, want, text + texts.text("smoke.memory.not_seen"))
    return Check(name, PASS, value, want, text)


def _made_by(run: Evidence, peaks: dict[int, float]) -> str:
    """The batch of the peak, by the event of the `vram` callback."""
    events = run.events("memory_peak")
    if events:
        evidence = events[-1].get("evidence") or {}
        shapes = " + ".join(" x ".join(map(str, one)) for one in (evidence.get("micro_batches") or [])[:4])
        if shapes:
            return texts.text("smoke.memory.made", step=events[-1].get("step"), shapes=shapes)
    top = max(peaks, key=lambda step: (peaks[step], -step))
    longest = run.column("data/max_length").get(top)
    return texts.text("smoke.memory.reached", top=top) + (
        texts.text("smoke.memory.longest", longest=longest) if longest else ""
    )


def _cure(run: Evidence, over: float, others: float) -> str:
    cures = remedies(run.config)
    if others <= over:  # stopping vLLM would not be enough
        cures = cures[:-1] or cures
    return in_order(cures)


def check_longest(run: Evidence, longest_tokens: int | None) -> Check:
    """The longest row of the data was among those that the smoke run trained on.

    Args:
        longest_tokens: of the training split, after `cutoff_len`; None: the mask gate did not say; then the marker of
            `--run-smoke` counts.
    """
    name = "longest_rows"
    packing = run.config.given.get("packing")
    packed = truth(packing) if packing is not None else str(run.config.given.get("stage", "sft")) == "pt"
    if packed or truth(run.config.given.get("neat_packing")):
        cutoff = run.config.given.get("cutoff_len", 2048)
        return Check(name, PASS, cutoff, cutoff, texts.text("smoke.memory.packing", cutoff=cutoff))
    lengths = run.column("data/max_length")
    if lengths:
        seen = int(max(lengths.values()))
    else:
        events = run.events("memory_peak")
        padded = [(one.get("evidence") or {}).get("longest_sequence") for one in events]
        padded = [one for one in padded if isinstance(one, int)]
        if not padded:
            text = texts.text("smoke.memory.lengths")
            return Check(name, ERROR, None, longest_tokens, text, texts.text("smoke.memory.label_mask"))
        seen = max(padded) - _PADDED_TO + 1  # at least
    source = texts.text("smoke.memory.of_data")
    chosen = run.marker.get("longest")
    chosen = chosen.get("length") if isinstance(chosen, dict) else None
    if longest_tokens is None and isinstance(chosen, int):
        longest_tokens, source = chosen, texts.text("smoke.memory.as_read")
    if longest_tokens is None:
        text = texts.text("smoke.memory.seen", seen=seen)
        return Check(name, ERROR, seen, None, text, texts.text("smoke.memory.run_all"))
    if seen >= longest_tokens:
        text = texts.text("smoke.memory.longest_seen", source=source, longest_tokens=longest_tokens)
        return Check(name, PASS, seen, longest_tokens, text)
    text = texts.text("smoke.memory.lucky", seen=seen, source=source, longest_tokens=longest_tokens)
    return Check(name, FAIL, seen, longest_tokens, text, texts.text("smoke.memory.run_smoke"))
