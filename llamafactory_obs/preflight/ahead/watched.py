"""Will anything be recorded, and will somebody look at the checkpoints' answers?"""

import os
from dataclasses import fields
from types import SimpleNamespace

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
        return [Check("extra_keys", PASS, [], [], "ALLOW_EXTRA_ARGS=1, and LlamaFactory knows all keys")]
    text = f"ALLOW_EXTRA_ARGS=1: LlamaFactory ignores {', '.join(unknown)}"
    return [Check("extra_keys", WARN, unknown, [], text, "unset ALLOW_EXTRA_ARGS: it then names unknown keys itself")]


def _loaded(run: Effective) -> Check:
    name, number = "obs_loaded", len(run.config.callbacks)
    nothing = "no `callbacks:`: nothing will be recorded"
    fix = "callbacks: [grad_norm_spike, layer_norms, label_mask, vram]"
    if not run.config.ours:
        return Check(name, WARN, 0, 1, nothing, fix)
    from ...doctor import examine

    found = examine()
    if found["live"] and number:
        text = f"the plug is live here: `llamafactory-cli train` honours {number} callbacks"
        return Check(name, PASS, True, True, text)
    if found["live"]:
        return Check(name, WARN, 0, 1, f"`{run.config.ours[0]}:` is given, but {nothing}", fix)
    reason = found["reasons"][0] if found["reasons"] else {"what": "for no reason known here", "fix": ""}
    keys = " and ".join(f"`{key}:`" for key in run.config.ours)
    then = (
        f"ALLOW_EXTRA_ARGS=1 makes LlamaFactory ignore {keys}: the run would go on unwatched, without a word"
        if _extra_allowed()
        else f"LlamaFactory will refuse {keys} as unknown"
    )
    text = f"observability is asked for and not loaded: {reason['what']}. {then}"
    return Check(name, FAIL, False, True, text, f"{reason['fix'] or 'llamafactory-obs doctor'}; doctor tells more")


def _entries(run: Effective) -> Check:
    if not run.config.callbacks:
        return Check("callbacks", SKIPPED, 0, None, "no `callbacks:`")
    best = run.get("metric_for_best_model") or ("loss" if run.get("load_best_model_at_end") else None)
    try:
        entries = parse_entries(list(run.config.callbacks))
        check_early_stopping(entries, SimpleNamespace(metric_for_best_model=best))
    except ConfigError as error:
        return Check("callbacks", FAIL, None, None, f"the training would refuse to start: {error}", _NAMES)
    names = ", ".join(entry.name for entry in entries)
    return Check("callbacks", PASS, len(entries), None, f"{len(entries)} callbacks: {names}")


def _probe(run: Effective) -> Check:
    name, options = "probe", run.config.options_of("probe")
    if options is not None:
        return Check(name, PASS, True, True, f"each checkpoint is asked (backend {options.get('backend', 'auto')})")
    if run.is_short or not run.config.callbacks:
        why = f"a run of {run.steps_text}" if run.is_short else "no `callbacks:`"
        return Check(name, SKIPPED, False, True, f"no probe, and none expected: {why}")
    text = "no probe: nobody looks at the checkpoints' answers while it trains; the loss does not show broken calls"
    fix = "callbacks: [..., probe], or `llamafactory-obs probe DIR --watch` beside it"
    return Check(name, WARN, False, True, text, fix)
