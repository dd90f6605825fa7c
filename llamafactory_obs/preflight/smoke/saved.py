"""The checkpoint of the smoke run: is it there, whole, and enough for a resume?"""

import re

from ...checkpoint.files import Incomplete, read_json
from ...checkpoint.part import BROKEN, DOUBTFUL, GOOD, MISSING, STALE, Expected, Part
from ...checkpoint.resume_state import resume_parts
from ..result import ERROR, FAIL, PASS, WARN, Check
from .evidence import Evidence, truth

_AGAIN = "run the smoke again"
#: any of these makes a tokenizer
_TOKENIZER = re.compile(r"tokenizer\.(json|model)|tokenizer_config\.json|vocab\.(json|txt)|.*\.(tiktoken|model)")
#: LlamaFactory's optimizers that are rebuilt, or kept for each parameter, during a run
_OWN_STEPS = ("use_badam", "use_galore", "use_apollo")


def check_saved(run: Evidence) -> Check:
    """`checkpoint-N` is there."""
    name, want = "checkpoint_saved", run.checkpoint.name
    if run.checkpoint.is_dir():
        return Check(name, PASS, want, want, f"{want} was saved")
    there = sorted(one.name for one in run.folder.glob("checkpoint-*") if one.is_dir())
    text = f"there is no {want} in the smoke run's folder"
    text += f" (only {', '.join(there[:4])})" if there else ", and no other checkpoint"
    text += f"; {want} is a file" if run.checkpoint.is_file() else ""
    return Check(name, FAIL, there[-1] if there else None, want, text, f"save_steps: {run.step}, then {_AGAIN}")


def check_complete(run: Evidence) -> Check:
    """All files that inference needs are there and whole, by their content."""
    name = "checkpoint_complete"
    if not run.checkpoint.is_dir():
        return run.without_checkpoint(name)
    proof = run.proof
    why = proof.why or _torn(run)
    if why:
        key = why.partition("set ")[2]
        if key:
            text = f"{run.checkpoint.name} holds shards only, which nothing but the training itself can load: {why}"
            return Check(name, FAIL, proof.kind, "whole", text, key)
        fix = f"free disk space, or a save that was cut off: {_AGAIN}"
        return Check(name, FAIL, why, "whole", f"{run.checkpoint.name} is not whole: {why}", fix)
    text = f"{run.checkpoint.name} is whole: {proof.kind}, {len(proof.files)} files, step {proof.step}"
    if not any(map(_TOKENIZER.fullmatch, proof.files)):
        text += "; there is no tokenizer in it: whoever serves it needs that of the base model"
        return Check(name, WARN, "no tokenizer", "whole", text)
    return Check(name, PASS, proof.kind, "whole", text)


def _torn(run: Evidence) -> str:
    """What is wrong with the first JSON file beside the weights (tokenizer, generation config) that cannot be read."""
    try:
        for file in run.proof.files:
            if file.endswith(".json"):
                read_json(run.checkpoint / file)
    except Incomplete as reason:
        return str(reason)
    return ""


def check_resume(run: Evidence) -> Check:
    """It holds what a resume needs: optimizer, scheduler, scaler with fp16, RNG of each rank, trainer state."""
    name, want = "checkpoint_resume", "resumes exactly"
    if not run.checkpoint.is_dir():
        return run.without_checkpoint(name)
    ranks = run.identity("world", "world_size")
    expected = Expected(
        step=run.step,
        fp16=run.fp16,
        ranks=ranks if isinstance(ranks, int) else 1,
        trainable=run.identity("model", "parameters", "trainable"),
        own_steps=any(truth(run.config.given.get(key)) for key in _OWN_STEPS),
    )
    try:
        parts = resume_parts(run.checkpoint, expected)
    except OSError as error:
        text = f"{run.checkpoint.name} cannot be read: {error.strerror}"
        return Check(name, ERROR, None, want, text)
    return _judge_parts(run, parts)


def _judge_parts(run: Evidence, parts: list[Part]) -> Check:
    name, want = "checkpoint_resume", "resumes exactly"
    lost = [part for part in parts if part.needed and part.state in (MISSING, BROKEN, STALE)]
    absent = {part.name for part in lost if part.state == MISSING}
    if truth(run.config.given.get("save_only_model")) or {"optimizer", "scheduler"} <= absent:
        why = "save_only_model" if truth(run.config.given.get("save_only_model")) else "as with save_only_model"
        text = f"warm start only ({why}): {', '.join(part.file for part in lost)} not saved; a resume begins a new"
        text += " optimizer and a new learning rate schedule, without a word"
        if lost:
            return Check(name, FAIL, "warm start only", want, text, "save_only_model: false")
    if lost:
        value = "warm start only" if "optimizer" in absent else "broken"
        text = "; ".join(part.why for part in lost)
        fix = f"{_AGAIN}; if it says the same, was the disk full, or the save cut off?"
        return Check(name, FAIL, value, want, f"a resume fails or loses its state: {text}", fix)
    doubts = [part for part in parts if part.state != GOOD]
    if doubts:
        grave = [part for part in doubts if part.state == DOUBTFUL]
        value = "resumes, not as it was" if grave else "resumes, not bit-exact"
        text = "; ".join(part.why for part in doubts)
        return Check(name, WARN, value, want, f"it resumes, but {text}")
    files = ", ".join(dict.fromkeys(part.file for part in parts))
    return Check(name, PASS, want, want, f"all that a resume needs is there, can be read and is of this step: {files}")
