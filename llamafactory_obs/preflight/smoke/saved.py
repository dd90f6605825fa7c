"""The checkpoint of the smoke run: is it there, whole, enough for a resume, and does it load and compute?"""

from ...checkpoint.loading import Loaded, try_to_load
from ...checkpoint.resume_state import BROKEN, DOUBTFUL, GOOD, MISSING, Expected, Part, resume_parts
from ...probe.complete import Incomplete
from ..result import ERROR, FAIL, PASS, WARN, Check
from .evidence import Evidence, truth

_AGAIN = "run the smoke again"


def check_saved(run: Evidence) -> Check:
    """`checkpoint-N` is there."""
    name, want = "checkpoint_saved", run.checkpoint.name
    if run.checkpoint.is_dir():
        return Check(name, PASS, want, want, f"{want} was saved")
    there = sorted(one.name for one in run.folder.glob("checkpoint-*") if one.is_dir())
    text = f"there is no {want} in the smoke run's folder"
    text += f" (only {', '.join(there[:4])})" if there else ", and no other checkpoint"
    return Check(name, FAIL, there[-1] if there else None, want, text, f"save_steps: {run.step}, then {_AGAIN}")


def check_complete(run: Evidence) -> Check:
    """All files that inference needs are there and whole, by their content."""
    name = "checkpoint_complete"
    if not run.checkpoint.is_dir():
        return run.without_checkpoint(name)
    proof = run.proof
    if proof.complete:
        text = f"{run.checkpoint.name} is whole: {proof.kind}, {len(proof.files)} files, step {proof.step}"
        return Check(name, PASS, proof.kind, "whole", text)
    if proof.kind == "unsupported":
        text = f"{run.checkpoint.name} holds shards only, which nothing but the training itself can load: {proof.why}"
        return Check(name, FAIL, proof.kind, "whole", text, proof.why.partition("set ")[2] or _AGAIN)
    fix = f"free disk space, or a save that was cut off: {_AGAIN}"
    return Check(name, FAIL, proof.why, "whole", f"{run.checkpoint.name} is not whole: {proof.why}", fix)


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
    )
    try:
        parts = resume_parts(run.checkpoint, expected)
    except OSError as error:
        text = f"{run.checkpoint.name} cannot be read: {error.strerror}"
        return Check(name, ERROR, None, want, text)
    return _judge_parts(run, parts)


def _judge_parts(run: Evidence, parts: list[Part]) -> Check:
    name, want = "checkpoint_resume", "resumes exactly"
    lost = [part for part in parts if part.needed and part.state in (MISSING, BROKEN)]
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


def check_loads(run: Evidence, device: str) -> Check:
    """Its weights are finite and did change, it loads onto the base model, and the forward pass gives finite logits."""
    name, want = "checkpoint_loads", "finite logits"
    unfit = run.without_checkpoint(name)
    if unfit is not None:
        return unfit
    try:
        values = run.values
    except Incomplete as reason:
        return Check(name, FAIL, str(reason), want, f"{run.checkpoint.name}: {reason}", _AGAIN)
    if values.nonfinite:
        file, bad = next(iter(values.nonfinite.items()))
        count = sum(map(len, values.nonfinite.values()))
        text = f"{count} of {len(values.names)} tensors hold NaN or infinity, e.g. {bad[0]} in {file}"
        return Check(name, FAIL, count, want, text, "see loss_finite: a lower learning_rate, bf16 instead of fp16")
    if values.lora_b and values.lora_b_zero == values.lora_b:
        text = f"the adapter changes nothing: all {values.lora_b} lora_B in {run.proof.weights[0]} are zero"
        return Check(name, FAIL, "changes nothing", want, text, "see loss_moves: learning rate, gradients")
    return _judge_loaded(run, try_to_load(run.checkpoint, run.proof.kind, run.base, device))


def _judge_loaded(run: Evidence, loaded: Loaded) -> Check:
    name, want, files = "checkpoint_loads", "finite logits", ", ".join(run.proof.weights[:2])
    if not loaded.loaded and loaded.stage in ("base", "process"):
        text = f"could not be tried: {loaded.why}"
        return Check(name, ERROR, None, want, text, "try it on the machine that trains, or free memory there")
    if not loaded.loaded:
        fix = "is it the adapter of this base model? Else the save is broken"
        return Check(name, FAIL, loaded.stage, want, f"{run.checkpoint.name} ({files}): {loaded.why}", fix)
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
    text = f"{run.checkpoint.name} loads and computes on {loaded.device} in {loaded.seconds:.0f} s: all"
    text += f" {loaded.logits} logits are finite"
    text += "".join(f"; {note}" for note in loaded.notes)
    if loaded.unexpected_count:
        text += f"; {loaded.unexpected_count} of its weights have no place in the model, e.g. {loaded.unexpected[0]}"
        return Check(name, WARN, want, want, text)
    return Check(name, PASS, want, want, text)
