"""Does the checkpoint of the smoke run load and compute, and are there numbers in it that can be?"""

import re
from pathlib import Path

from ... import texts
from ...checkpoint.files import ADAPTER_CONFIG, Incomplete, read_json
from ...checkpoint.loading import Loaded, try_to_load
from ...checkpoint.tensors import Values, zero_in
from ..result import ERROR, FAIL, PASS, WARN, Check
from .evidence import Evidence, truth


def check_loads(run: Evidence, device: str) -> Check:
    """Its weights are finite and did change, it loads onto the base model, and the forward pass gives finite logits."""
    name, want = "checkpoint_loads", "finite logits"
    unfit = run.without_checkpoint(name)
    if unfit is not None:
        return unfit
    try:
        broken = _judge_values(run)
    except Incomplete as reason:
        return Check(
            name,
            FAIL,
            str(reason),
            want,
            texts.text("smoke.loads.reason", name=run.checkpoint.name, reason=reason),
            _again(),
        )
    return broken or _judge_loaded(run, try_to_load(run.checkpoint, run.proof.kind, run.base, device))


def _judge_values(run: Evidence) -> Check | None:
    """What is wrong with the numbers in its weights; None where nothing is.

    Raises:
        Incomplete: a weight file cannot be read.
    """
    name, want, values = "checkpoint_loads", "finite logits", run.values
    if values.nonfinite:
        file, bad = next(iter(values.nonfinite.items()))
        count = sum(map(len, values.nonfinite.values()))
        text = texts.text("smoke.loads.nan", count=count, of=len(values.names), tensor=bad[0], file=file)
        return Check(name, FAIL, count, want, text, texts.text("smoke.loads.see_finite"))
    wiped = _wiped(run, values)
    if wiped:
        file, lost = next((file, one) for file, names in values.zero.items() for one in names if one in wiped)
        text = texts.text("smoke.loads.zeros", count=len(wiped), of=values.matrices, tensor=lost, file=file)
        fix = texts.text("smoke.loads.cut_off", again=_again())
        return Check(name, FAIL, len(wiped), want, text, fix)
    other = _other_base(run)
    if other:
        text = texts.text(
            "smoke.loads.other_base", name=run.checkpoint.name, config=ADAPTER_CONFIG, other=other, base=run.base.name
        )
        return Check(
            name,
            FAIL,
            other,
            run.base.name,
            text,
            texts.text("smoke.loads.this_model", again=_again()),
        )
    if values.lora_b and values.lora_b_zero == values.lora_b:
        text = texts.text("smoke.loads.nothing", count=values.lora_b, file=run.proof.weights[0])
        return Check(name, FAIL, "changes nothing", want, text, texts.text("smoke.loads.see_moves"))
    return None


def _wiped(run: Evidence, values: Values) -> list[str]:
    """Matrices that are all zero and were not so in the base model; where that is not here, only if all are zero."""
    names = [name for of_file in values.zero.values() for name in of_file]
    if not names or run.proof.kind == "adapter" or len(names) == values.matrices:
        return names
    folder = run.base_folder
    if folder is None or run.base.adapters or truth(run.config.given.get("train_from_scratch")):
        return []
    begun = zero_in(folder, names)
    return [name for name in names if name not in begun]


def _other_base(run: Evidence) -> str:
    """The base model that an adapter names, where it is another one than the run's; "" where they agree.

    Unsloth loads a quantised copy under another name, and that is what it writes.
    """
    if truth(run.config.given.get("use_unsloth")):
        return ""
    try:
        named = read_json(run.checkpoint / ADAPTER_CONFIG).get("base_model_name_or_path")
    except (Incomplete, AttributeError):
        return ""
    known = {run.base.name, str(run.identity("config", "given", "model_name_or_path") or run.base.name)}
    if not named or _plain_names(str(named)) & set().union(*map(_plain_names, known)):
        return ""
    return str(named)


def _plain_names(model: str) -> set[str]:
    """The last word of a model's path, links followed or not; hubs write dots and case in other ways."""
    paths = [Path(model), Path(model).resolve()]
    return {re.sub(r"[\W_]", "", path.name).lower() for path in paths}


def _judge_loaded(run: Evidence, loaded: Loaded) -> Check:
    name, want, files = "checkpoint_loads", "finite logits", ", ".join(run.proof.weights[:2])
    if not loaded.loaded and loaded.stage in ("base", "process"):
        text = texts.text("smoke.loads.not_tried", why=loaded.why)
        return Check(name, ERROR, None, want, text, texts.text("smoke.loads.elsewhere"))
    if not loaded.loaded:
        fix = texts.text("smoke.loads.broken")
        value = "does not compute" if loaded.stage == "forward" else "does not load"
        return Check(
            name,
            FAIL,
            value,
            want,
            texts.text("smoke.loads.why", name=run.checkpoint.name, files=files, why=loaded.why),
            fix,
        )
    if loaded.missing_count:
        text = texts.text("smoke.loads.lacks", name=run.checkpoint.name, files=files, count=loaded.missing_count)
        text += texts.text("smoke.loads.random", names=", ".join(loaded.missing[:3]))
        text += texts.text("smoke.loads.no_place", count=loaded.unexpected_count) if loaded.unexpected_count else ""
        return Check(name, FAIL, loaded.missing_count, want, text, texts.text("smoke.loads.broken"))
    if loaded.unexpected_count and run.proof.kind == "adapter":
        text = texts.text(
            "smoke.loads.other_model", name=run.checkpoint.name, files=files, count=loaded.unexpected_count
        )
        text += texts.text("smoke.loads.not_in", base=run.base.name, tensor=loaded.unexpected[0])
        return Check(name, FAIL, loaded.unexpected_count, want, text, texts.text("smoke.loads.path"))
    if loaded.nonfinite:
        text = texts.text("smoke.loads.logits", bad=loaded.nonfinite, logits=loaded.logits)
        return Check(name, FAIL, loaded.nonfinite, want, text, texts.text("smoke.loads.check_attention"))
    if loaded.spread == 0:
        text = texts.text("smoke.loads.one_number", logits=loaded.logits, name=run.checkpoint.name, files=files)
        return Check(
            name,
            FAIL,
            "one number",
            want,
            text,
            texts.text("smoke.loads.weights_lost", again=_again()),
        )
    text = texts.text("smoke.loads.computes", name=run.checkpoint.name, device=loaded.device, seconds=loaded.seconds)
    text += texts.text("smoke.loads.all_finite", logits=loaded.logits)
    text += "".join(texts.text("smoke.loads.note", note=note) for note in loaded.notes)
    if loaded.unexpected_count:
        text += texts.text("smoke.loads.unexpected", count=loaded.unexpected_count, tensor=loaded.unexpected[0])
        return Check(name, WARN, want, want, text)
    return Check(name, PASS, want, want, text)


def _again() -> str:
    return texts.text("smoke.again")
