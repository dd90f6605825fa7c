"""The checkpoint of the smoke run: is it there, whole, and enough for a resume?"""

import re

from ... import texts
from ...checkpoint.files import Incomplete, read_json
from ...checkpoint.part import BROKEN, DOUBTFUL, GOOD, MISSING, STALE, Expected, Part
from ...checkpoint.resume_state import resume_parts
from ...texts.sentences import sentence
from ..result import ERROR, FAIL, PASS, WARN, Check
from .evidence import Evidence, truth

#: any of these makes a tokenizer
_TOKENIZER = re.compile(r"tokenizer\.(json|model)|tokenizer_config\.json|vocab\.(json|txt)|.*\.(tiktoken|model)")
#: LlamaFactory's optimizers that are rebuilt, or kept for each parameter, during a run
_OWN_STEPS = ("use_badam", "use_galore", "use_apollo")


def check_saved(run: Evidence) -> Check:
    """`checkpoint-N` is there."""
    name, want = "checkpoint_saved", run.checkpoint.name
    if run.checkpoint.is_dir():
        return Check(name, PASS, want, want, texts.text("smoke.saved.saved", want=want))
    there = sorted(one.name for one in run.folder.glob("checkpoint-*") if one.is_dir())
    text = texts.text("smoke.saved.no", want=want)
    text += texts.text("smoke.saved.only", names=", ".join(there[:4])) if there else texts.text("smoke.saved.no_other")
    text += texts.text("smoke.saved.file", want=want) if run.checkpoint.is_file() else ""
    return Check(
        name,
        FAIL,
        there[-1] if there else None,
        want,
        text,
        texts.text("smoke.saved.save_steps", step=run.step, again=texts.text("smoke.again")),
    )


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
            text = texts.text("smoke.saved.shards", name=run.checkpoint.name, why=sentence(why))
            return Check(name, FAIL, proof.kind, "whole", text, key)
        fix = texts.text("smoke.saved.free_disk", again=texts.text("smoke.again"))
        text = texts.text("smoke.saved.not_whole", name=run.checkpoint.name, why=sentence(why))
        return Check(name, FAIL, why, "whole", text, fix)
    text = texts.text(
        "smoke.saved.whole", name=run.checkpoint.name, kind=proof.kind, files=len(proof.files), step=proof.step
    )
    if not any(map(_TOKENIZER.fullmatch, proof.files)):
        text += texts.text("smoke.saved.tokenizer")
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
        text = texts.text("smoke.saved.unreadable", name=run.checkpoint.name, error=error.strerror)
        return Check(name, ERROR, None, want, text)
    return _judge_parts(run, parts)


def _judge_parts(run: Evidence, parts: list[Part]) -> Check:
    name, want = "checkpoint_resume", "resumes exactly"
    lost = [part for part in parts if part.needed and part.state in (MISSING, BROKEN, STALE)]
    absent = {part.name for part in lost if part.state == MISSING}
    if truth(run.config.given.get("save_only_model")) or {"optimizer", "scheduler"} <= absent:
        why = (
            "save_only_model" if truth(run.config.given.get("save_only_model")) else texts.text("smoke.saved.save_only")
        )
        text = texts.text("smoke.saved.warm", why=why, files=", ".join(part.file for part in lost))
        text += texts.text("smoke.saved.new_schedule")
        if lost:
            return Check(name, FAIL, "warm start only", want, text, "save_only_model: false")
    if lost:
        value = "warm start only" if "optimizer" in absent else "broken"
        text = "; ".join(part.why for part in lost)
        fix = texts.text("smoke.saved.full", again=texts.text("smoke.again"))
        return Check(name, FAIL, value, want, texts.text("smoke.saved.fails", text=text), fix)
    doubts = [part for part in parts if part.state != GOOD]
    if doubts:
        grave = [part for part in doubts if part.state == DOUBTFUL]
        value = "resumes, not as it was" if grave else "resumes, not bit-exact"
        text = "; ".join(part.why for part in doubts)
        return Check(name, WARN, value, want, texts.text("smoke.saved.resumes", text=text))
    files = ", ".join(dict.fromkeys(part.file for part in parts))
    return Check(name, PASS, want, want, texts.text("smoke.saved.all_there", files=files))
