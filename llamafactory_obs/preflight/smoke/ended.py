"""Did the smoke run make its steps, and if not, what ended it? Out of memory has its cures in their order."""

import shlex
from pathlib import Path

from ... import texts
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
    where = (
        texts.text("smoke.ended.no_folder") if folder is None else texts.text("smoke.ended.not_there", folder=folder)
    )
    return Check(NAME, FAIL, 0, step, texts.text("smoke.ended.unknown", where=where), run_it(config))


def run_it(config: RunConfig) -> str:
    """The command that makes a smoke run of this config."""
    return texts.text("smoke.ended.make_one") + shlex.join(
        ["llamafactory-obs", "preflight", *config.words, "--run-smoke"]
    )


def no_record(config: RunConfig, folder: Path, step: int, error: ConfigError) -> Check:
    """A folder without `obs/`: nothing was trained, or it ended before the first step."""
    marker = read_marker(folder) or {}
    if marker.get("exit_code"):
        text = texts.text("smoke.ended.before_first", code=marker["exit_code"], words=_last_words(marker))
        return Check(NAME, FAIL, 0, step, text, _cure(config, text))
    fix = texts.text("smoke.ended.or_train", run=run_it(config), step=step)
    return Check(NAME, FAIL, 0, step, texts.text("smoke.ended.no_record", error=error), fix)


def check_ended(run: Evidence) -> Check:
    """The run made all its steps and no exception ended it."""
    made, want = run.last_step, run.step
    memory = _out_of_memory(run)
    if memory is not None:
        return _judge_memory(run, memory)
    for event in run.events("crash", "interrupted"):
        words = f"{event['kind']}: {event.get('text') or 'no words'}"
        text = texts.text("smoke.ended.in_step", step=event.get("step"), want=want, words=words)
        where = (event.get("evidence") or {}).get("traceback") or []
        text += texts.text("smoke.ended.at", place=where[-1]) if where else ""
        repair = texts.text("smoke.ended.repair")
        fix = run_it(run.config) if event["kind"] == "interrupted" else repair
        return Check(NAME, FAIL, made, want, text, fix)
    if run.marker.get("exit_code"):
        text = texts.text("smoke.ended.exit", made=made, want=want, code=run.marker["exit_code"])
        text += _last_words(run.marker)
        return Check(NAME, FAIL, made, want, text, _cure(run.config, text))
    if made < want:
        text = texts.text("smoke.ended.only", made=made, want=want, why=_why_fewer(run))
        return Check(NAME, FAIL, made, want, text, run_it(run.config))
    if not run.record.events:
        text = texts.text("smoke.ended.torn", made=made)
        return Check(NAME, ERROR, made, want, text, run_it(run.config))
    if made == want and not run.events("end"):  # a longer run may go on
        text = texts.text("smoke.ended.no_end", made=made)
        fix = texts.text("smoke.ended.wait", run=run_it(run.config))
        return Check(NAME, FAIL, made, want, text, fix)
    retries = run.events("retry")
    if retries:
        text = texts.text("smoke.ended.retried", made=made, said=retries[-1].get("text"))
        fix = texts.text("smoke.ended.smaller")
        return Check(NAME, WARN, made, want, text, fix)
    absent = sorted(set(range(1, want + 1)) - set(run.record.steps.get("step") or []))
    if run.record.torn or absent:
        text = texts.text("smoke.ended.torn_lines", made=made, torn=run.record.torn)
        text += texts.text("smoke.ended.absent", steps=", ".join(map(str, absent))) if absent else ""
        return Check(NAME, WARN, made, want, text)
    return Check(NAME, PASS, made, want, texts.text("smoke.ended.fine", made=made))


def _why_fewer(run: Evidence) -> str:
    if run.record.torn or not run.last_step:
        return texts.text("smoke.ended.lost")
    return texts.text("smoke.ended.its_end") if run.events("end") else texts.text("smoke.ended.running")


def _cure(config: RunConfig, text: str) -> str:
    """For an end of which only the last words are known."""
    if "out of memory" in text.lower():
        return in_order(remedies(config))
    return texts.text("smoke.ended.repair_named")


def in_order(cures: list[str]) -> str:
    """Cures as one line."""
    return texts.text("smoke.ended.in_order") + "; ".join(f"{i}. {one}" for i, one in enumerate(cures, 1))


def _last_words(marker: dict) -> str:
    words = marker.get("last_words") or [texts.text("smoke.ended.no_last_words")]
    return str(words[-1] if isinstance(words, list) else words)[:300]


def _out_of_memory(run: Evidence) -> dict | None:
    """The event of the memory's end; the `vram` callback's, else the recorder's crash with these words."""
    own = [one for one in run.events("oom") if one.get("action") != "keep"]
    crash = [one for one in run.events("crash") if "out of memory" in str(one.get("text")).lower()]
    return (own or crash or [None])[-1]


def _judge_memory(run: Evidence, event: dict) -> Check:
    evidence = event.get("evidence") or {}
    text = texts.text("smoke.ended.oom", step=event.get("step"), of=run.step)
    shapes = evidence.get("micro_batches") or []
    text += (
        texts.text("smoke.ended.at_batch") + " + ".join(" x ".join(map(str, shape)) for shape in shapes[:4])
        if shapes
        else ""
    )
    parts = [
        f"{word} {evidence[key]:.2f} GiB"
        for word, key in (
            ("allocated", "system/allocated_gib"),
            ("reserved", "system/reserved_gib"),
            (texts.text("smoke.ended.card"), "system/device_used_gib"),
            ("card", "card_gib"),
            ("process", "system/rss_gib"),
        )
        if isinstance(evidence.get(key), (int, float))
    ]
    text += f"; {', '.join(parts)}" if parts else ""
    holders = [one for one in evidence.get("processes_on_card") or [] if one.get("used_gib")]
    if holders:
        text += texts.text("smoke.ended.on_card") + ", ".join(_process(one) for one in holders)
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
        same = (
            texts.text("smoke.ended.same")
            if steps == total
            else texts.text("smoke.ended.total", steps=steps, total=total)
        )
        found.append(texts.text("smoke.ended.batch", steps=steps, same=same))
    cutoff = _whole(given, "cutoff_len", 2048)
    found.append(texts.text("smoke.ended.cutoff", new=max(256, cutoff // 2), cutoff=cutoff))
    if truth(given.get("disable_gradient_checkpointing")):
        found.append(texts.text("smoke.ended.checkpointing"))
    kind = str(given.get("finetuning_type", "lora"))
    if kind in ("full", "freeze"):
        found.append(texts.text("smoke.ended.lora", kind=kind))
    if given.get("quantization_bit") is None:
        found.append(texts.text("smoke.ended.qlora"))
    found.append(texts.text("smoke.ended.vllm"))
    return found


def _whole(given: dict, name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except (TypeError, ValueError):
        return default
