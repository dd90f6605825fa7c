"""Did the smoke run make its steps, and if not, what ended it? Out of memory has its cures in their order."""

import shlex
from pathlib import Path

from ...errors import ConfigError
from ..rehearsal.folder import read_marker
from ..result import ERROR, FAIL, PASS, WARN, Check
from ..run_config import RunConfig
from .evidence import Evidence, truth

NAME = "smoke_run"
#: how a rented card's user remembers it: a batch of 1 with its gradients summed over 16
_ACCUMULATION = 16


def no_folder(config: RunConfig, folder: Path | None, step: int) -> Check:
    """There is no smoke run at all."""
    where = "no smoke run is named" if folder is None else f"there is no folder {folder}"
    return Check(NAME, FAIL, 0, step, f"{where}: nothing is known of how this config trains", run_it(config))


def run_it(config: RunConfig) -> str:
    """The command that makes a smoke run of this config."""
    return "make one: " + shlex.join(["llamafactory-obs", "preflight", *config.words, "--run-smoke"])


def no_record(config: RunConfig, folder: Path, step: int, error: ConfigError) -> Check:
    """A folder without `obs/`: nothing was trained, or it ended before the first step."""
    marker = read_marker(folder) or {}
    if marker.get("exit_code"):
        text = f"the smoke run ended before its first step (exit code {marker['exit_code']}): {_last_words(marker)}"
        return Check(NAME, FAIL, 0, step, text, _cure(config, text))
    fix = f"{run_it(config)}; or train {step} steps with `callbacks: [vram, label_mask, layer_norms]`"
    return Check(NAME, FAIL, 0, step, f"no record of a run: {error}", fix)


def check_ended(run: Evidence) -> Check:
    """The run made all its steps and no exception ended it."""
    made, want = run.last_step, run.step
    memory = _out_of_memory(run)
    if memory is not None:
        return _judge_memory(run, memory)
    for event in run.events("crash", "interrupted"):
        words = f"{event['kind']}: {event.get('text') or 'no words'}"
        text = f"the smoke run ended in step {event.get('step')} of {want}: {words}"
        where = (event.get("evidence") or {}).get("traceback") or []
        text += f" (at {where[-1]})" if where else ""
        repair = "repair what the exception names, then run the smoke again"
        fix = run_it(run.config) if event["kind"] == "interrupted" else repair
        return Check(NAME, FAIL, made, want, text, fix)
    if run.marker.get("exit_code"):
        text = f"the smoke run ended after {made} of {want} steps with exit code {run.marker['exit_code']}: "
        text += _last_words(run.marker)
        return Check(NAME, FAIL, made, want, text, _cure(run.config, text))
    if made < want:
        text = f"only {made} of {want} steps are on record: {_why_fewer(run)}"
        return Check(NAME, FAIL, made, want, text, run_it(run.config))
    if not run.record.events:
        text = f"{made} steps, but whether an exception ended them is not known: events.jsonl is missing or torn"
        return Check(NAME, ERROR, made, want, text, run_it(run.config))
    if made == want and not run.events("end"):  # a longer run may go on
        text = f"{made} steps, but the record has no end: the run was killed, or is still running"
        fix = f"wait for its end; if it was killed (out of memory: `dmesg`), {run_it(run.config)}"
        return Check(NAME, FAIL, made, want, text, fix)
    retries = run.events("retry")
    if retries:
        text = f"{made} steps, but the Trainer began again with a smaller batch: {retries[-1].get('text')}"
        fix = "set per_device_train_batch_size to what fits, auto_find_batch_size: false"
        return Check(NAME, WARN, made, want, text, fix)
    absent = sorted(set(range(1, want + 1)) - set(run.record.steps.get("step") or []))
    if run.record.torn or absent:
        text = f"{made} steps; {run.record.torn} lines of the record are torn"
        text += f"; not on record: step {', '.join(map(str, absent))}" if absent else ""
        return Check(NAME, WARN, made, want, text)
    return Check(NAME, PASS, made, want, f"{made} steps were made and no exception ended them")


def _why_fewer(run: Evidence) -> str:
    if run.record.torn or not run.last_step:
        return "its record is torn or was lost"
    return "its data or max_steps ended it" if run.events("end") else "it is still running, or was killed"


def _cure(config: RunConfig, text: str) -> str:
    """For an end of which only the last words are known."""
    if "out of memory" in text.lower():
        return in_order(remedies(config))
    return "repair what it names, then run the smoke again"


def in_order(cures: list[str]) -> str:
    """Cures as one line."""
    return "in this order: " + "; ".join(f"{i}. {one}" for i, one in enumerate(cures, 1))


def _last_words(marker: dict) -> str:
    words = marker.get("last_words") or ["no last words"]
    return str(words[-1] if isinstance(words, list) else words)[:300]


def _out_of_memory(run: Evidence) -> dict | None:
    """The event of the memory's end; the `vram` callback's, else the recorder's crash with these words."""
    own = [one for one in run.events("oom") if one.get("action") != "keep"]
    crash = [one for one in run.events("crash") if "out of memory" in str(one.get("text")).lower()]
    return (own or crash or [None])[-1]


def _judge_memory(run: Evidence, event: dict) -> Check:
    evidence = event.get("evidence") or {}
    text = f"out of memory (OOM) in step {event.get('step')} of {run.step}"
    shapes = evidence.get("micro_batches") or []
    text += " at a batch of " + " + ".join(" x ".join(map(str, shape)) for shape in shapes[:4]) if shapes else ""
    parts = [
        f"{word} {evidence[key]:.2f} GiB"
        for word, key in (
            ("allocated", "system/allocated_gib"),
            ("reserved", "system/reserved_gib"),
            ("whole card in use", "system/device_used_gib"),
            ("card", "card_gib"),
            ("process", "system/rss_gib"),
        )
        if isinstance(evidence.get(key), (int, float))
    ]
    text += f"; {', '.join(parts)}" if parts else ""
    holders = [one for one in evidence.get("processes_on_card") or [] if one.get("used_gib")]
    if holders:
        text += "; on the card: " + ", ".join(_process(one) for one in holders)
    return Check(NAME, FAIL, run.last_step, run.step, text, in_order(remedies(run.config)))


def _process(one: dict) -> str:
    return f"{one.get('name') or 'pid'} {one.get('pid')} {one['used_gib']:.2f} GiB"


def remedies(config: RunConfig) -> list[str]:
    """Cures for a full card, the cheapest first, with this config's values; those it has already are left out."""
    given = config.given
    batch, accumulation = (
        _whole(given, "per_device_train_batch_size", 8),
        _whole(given, "gradient_accumulation_steps", 1),
    )
    found = []
    if batch > 1:
        total = batch * accumulation
        steps = max(_ACCUMULATION, total)
        same = "the same total batch" if steps == total else f"total batch {steps}, it was {total}"
        found.append(f"per_device_train_batch_size: 1, gradient_accumulation_steps: {steps} ({same})")
    cutoff = _whole(given, "cutoff_len", 2048)
    found.append(f"cutoff_len: {max(256, cutoff // 2)} (now {cutoff}; the mask gate counts what it cuts)")
    if truth(given.get("disable_gradient_checkpointing")):
        found.append("disable_gradient_checkpointing: false (about a third more compute)")
    kind = str(given.get("finetuning_type", "lora"))
    if kind in ("full", "freeze"):
        found.append(f"finetuning_type: lora, lora_rank: 8 (now {kind})")
    if given.get("quantization_bit") is None:
        found.append("QLoRA: quantization_bit: 4, quantization_method: bnb (with finetuning_type: lora)")
    found.append("vLLM last: a smaller --gpu-memory-utilization, or stop it (a restart costs ten minutes)")
    return found


def _whole(given: dict, name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except (TypeError, ValueError):
        return default
