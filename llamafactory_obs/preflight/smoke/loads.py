"""Does the checkpoint of the smoke run load and compute, and are there numbers in it that can be?"""

import re
from pathlib import Path

from ...checkpoint.files import ADAPTER_CONFIG, Incomplete, read_json
from ...checkpoint.loading import Loaded, try_to_load
from ...checkpoint.tensors import Values, zero_in
from ..result import ERROR, FAIL, PASS, WARN, Check
from .evidence import Evidence, truth

_AGAIN = "run the smoke again"


def check_loads(run: Evidence, device: str) -> Check:
    """Its weights are finite and did change, it loads onto the base model, and the forward pass gives finite logits."""
    name, want = "checkpoint_loads", "finite logits"
    unfit = run.without_checkpoint(name)
    if unfit is not None:
        return unfit
    try:
        broken = _judge_values(run)
    except Incomplete as reason:
        return Check(name, FAIL, str(reason), want, f"{run.checkpoint.name}: {reason}", _AGAIN)
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
        text = f"{count} of {len(values.names)} tensors hold NaN or infinity, e.g. {bad[0]} in {file}"
        return Check(name, FAIL, count, want, text, "see loss_finite: a lower learning_rate, bf16 instead of fp16")
    wiped = _wiped(run, values)
    if wiped:
        file, lost = next((file, one) for file, names in values.zero.items() for one in names if one in wiped)
        text = f"{len(wiped)} of {values.matrices} weight matrices hold nothing but zeros, e.g. {lost} in {file}"
        fix = f"the save was cut off, or the disk lost it: {_AGAIN}"
        return Check(name, FAIL, len(wiped), want, text, fix)
    other = _other_base(run)
    if other:
        text = (
            f"{run.checkpoint.name} is of another base model: its {ADAPTER_CONFIG} names {other}, not {run.base.name}"
        )
        return Check(name, FAIL, other, run.base.name, text, f"{_AGAIN} with this model_name_or_path")
    if values.lora_b and values.lora_b_zero == values.lora_b:
        text = f"the adapter changes nothing: all {values.lora_b} lora_B in {run.proof.weights[0]} are zero"
        return Check(name, FAIL, "changes nothing", want, text, "see loss_moves: learning rate, gradients")
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
        text = f"could not be tried: {loaded.why}"
        return Check(name, ERROR, None, want, text, "try it on the machine that trains, or free memory there")
    if not loaded.loaded:
        fix = "the save is broken, or of another base model"
        value = "does not compute" if loaded.stage == "forward" else "does not load"
        return Check(name, FAIL, value, want, f"{run.checkpoint.name} ({files}): {loaded.why}", fix)
    if loaded.missing_count:
        text = f"{run.checkpoint.name} ({files}) lacks {loaded.missing_count} of the model's weights, e.g."
        text += f" {', '.join(loaded.missing[:3])}: they would be filled with random numbers"
        text += f"; {loaded.unexpected_count} of its own have no place" if loaded.unexpected_count else ""
        return Check(name, FAIL, loaded.missing_count, want, text, "the save is broken, or of another base model")
    if loaded.unexpected_count and run.proof.kind == "adapter":
        text = (
            f"{run.checkpoint.name} ({files}) is of another base model: {loaded.unexpected_count} of its tensors have"
        )
        text += f" no place in {run.base.name}, e.g. {loaded.unexpected[0]}"
        return Check(name, FAIL, loaded.unexpected_count, want, text, "model_name_or_path of the smoke run")
    if loaded.nonfinite:
        text = f"{loaded.nonfinite} of {loaded.logits} logits are NaN or infinite, though all weights are finite"
        return Check(name, FAIL, loaded.nonfinite, want, text, "check flash_attn and the data type (bf16 for fp16)")
    if loaded.spread == 0:
        text = f"all {loaded.logits} logits of {run.checkpoint.name} ({files}) are one number: the model says nothing"
        return Check(name, FAIL, "one number", want, text, f"its weights were lost: {_AGAIN}")
    text = f"{run.checkpoint.name} loads and computes on {loaded.device} in {loaded.seconds:.0f} s: all"
    text += f" {loaded.logits} logits are finite"
    text += "".join(f"; {note}" for note in loaded.notes)
    if loaded.unexpected_count:
        text += f"; {loaded.unexpected_count} of its weights have no place in the model, e.g. {loaded.unexpected[0]}"
        return Check(name, WARN, want, want, text)
    return Check(name, PASS, want, want, text)
