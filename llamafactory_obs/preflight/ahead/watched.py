"""Will anything be recorded, and will somebody look at the checkpoints' answers?"""

import os
from dataclasses import fields
from types import SimpleNamespace

from ... import texts
from ...errors import ConfigError
from ...plugin.entries import parse_entries
from ...plugin.patches import check_early_stopping
from ..result import FAIL, PASS, SKIPPED, WARN, Check
from .effective import Effective

_NAMES = "`llamafactory-obs callbacks` lists all names and options"


def check_watched(run: Effective) -> list[Check]:
    """`obs_loaded`, `callbacks`, `probe`; `extra_keys` under ALLOW_EXTRA_ARGS=1."""
    return [_loaded(run), _entries(run), _probe(run), *(_extra_keys(run) if _extra_allowed() else [])]


def _extra_allowed() -> bool:
    return os.environ.get("ALLOW_EXTRA_ARGS", "").lower() in ("true", "y", "1")


def _extra_keys(run: Effective) -> list[Check]:
    """Keys that LlamaFactory does not know and then ignores; without the switch it refuses them itself."""
    from llamafactory.hparams import GeneratingArguments

    known = {field.name for field in fields(GeneratingArguments)}
    unknown = sorted(key for key in run.config.given if key not in known and not run.knows(key))
    if not unknown:
        return [Check("extra_keys", PASS, [], [], texts.text("ahead.watched.all_known"))]
    text = texts.text("ahead.watched.ignores", names=", ".join(unknown))
    return [Check("extra_keys", WARN, unknown, [], text, texts.text("ahead.watched.unset"))]


def _loaded(run: Effective) -> Check:
    name, number = "obs_loaded", len(run.config.callbacks)
    nothing = texts.text("ahead.watched.nothing")
    fix = "callbacks: [grad_norm_spike, layer_norms, label_mask, vram]"
    if not run.config.ours:
        return Check(name, WARN, 0, 1, nothing, fix)
    from ...doctor import examine

    found = examine()
    if found["live"] and number:
        text = texts.text("ahead.watched.live", number=number)
        return Check(name, PASS, True, True, text)
    if found["live"]:
        return Check(name, WARN, 0, 1, texts.text("ahead.watched.given", key=run.config.ours[0], nothing=nothing), fix)
    reason = found["reasons"][0] if found["reasons"] else {"what": texts.text("ahead.watched.no_reason"), "fix": ""}
    keys = " and ".join(f"`{key}:`" for key in run.config.ours)
    then = (
        texts.text("ahead.watched.unwatched", keys=keys)
        if _extra_allowed()
        else texts.text("ahead.watched.refuse", keys=keys)
    )
    text = texts.text("ahead.watched.not_loaded", what=reason["what"], then=then)
    return Check(name, FAIL, False, True, text, f"{reason['fix'] or 'llamafactory-obs doctor'}; doctor tells more")


def _entries(run: Effective) -> Check:
    if not run.config.callbacks:
        return Check("callbacks", SKIPPED, 0, None, texts.text("ahead.watched.none"))
    best = run.get("metric_for_best_model") or ("loss" if run.get("load_best_model_at_end") else None)
    try:
        entries = parse_entries(list(run.config.callbacks))
        check_early_stopping(entries, SimpleNamespace(metric_for_best_model=best))
    except ConfigError as error:
        return Check("callbacks", FAIL, None, None, texts.text("ahead.watched.would_refuse", error=error), _NAMES)
    names = ", ".join(entry.name for entry in entries)
    return Check(
        "callbacks", PASS, len(entries), None, texts.text("ahead.watched.callbacks", count=len(entries), names=names)
    )


def _probe(run: Effective) -> Check:
    name, options = "probe", run.config.options_of("probe")
    if options is not None:
        return Check(name, PASS, True, True, texts.text("ahead.watched.asked", backend=options.get("backend", "auto")))
    if run.is_short or not run.config.callbacks:
        why = (
            texts.text("ahead.watched.a_run", steps=run.steps_text)
            if run.is_short
            else texts.text("ahead.watched.none")
        )
        return Check(name, SKIPPED, False, True, texts.text("ahead.watched.none_expected", why=why))
    text = texts.text("ahead.watched.nobody")
    fix = texts.text("ahead.watched.cure")
    return Check(name, WARN, False, True, text, fix)
