"""`output_dir`: what will happen to the folder, in words; and for a resume, whether it continues the run."""

import os
from pathlib import Path

from ... import texts
from ...probe.complete import prove
from ...texts.sentences import sentence
from ..result import FAIL, PASS, WARN, Check
from .effective import Effective
from .guarded import guarded
from .resume_changes import check_changes
from .resume_state import check_state, is_sharded
from .start import LOG, Start, how_it_starts


def check_output_dir(run: Effective) -> list[Check]:
    """`output_dir`, and for a resume `resume_state`, `resume_rng`, `resume_keys`, `resume_left`.

    What the checkpoint's own files say may be odd in ways that nobody has thought of: then that group is an error, and
    `output_dir` is told all the same.
    """
    why = no_folder(run.output_dir)
    if why:
        text = texts.text("ahead.output.ends", why=why)
        return [Check("output_dir", FAIL, str(run.output_dir), None, text, texts.text("ahead.output.repair"))]
    start = how_it_starts(run)
    if start.kind == "refused":
        return [_refused(run, start)]
    if start.kind == "new":
        return [_new(run, start)]
    why = flaw(start.checkpoint)
    if why:
        return [_broken(run, start, why)]
    state = guarded("resume_state", lambda: check_state(run, start.checkpoint))
    return [_resumes(run, start), *state, *guarded("resume_keys", lambda: check_changes(run, start.checkpoint))]


def no_folder(output: Path) -> str:
    """Why nothing can be saved in a folder that may not exist yet; "" where it can. Nothing is written to find out."""
    try:
        there = next(one for one in (output.absolute(), *output.absolute().parents) if os.path.lexists(one))
        if not there.is_dir():
            broken_link = there.is_symlink() and not there.exists()
            what = "ahead.start.link_to_nothing" if broken_link else "ahead.start.not_a_folder"
            return texts.text(what, path=there)
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return texts.text("ahead.output.read_only", there=there)
    except OSError as error:
        return texts.text("ahead.output.no_look", path=output, error=error.strerror)
    if not os.access(there, os.W_OK | os.X_OK | os.R_OK):
        return texts.text("ahead.output.no_right", there=there)
    return ""


def step_of(folder: Path) -> int | None:
    """N of `checkpoint-N`, None for a folder of another name."""
    kind, dash, number = folder.name.partition("-")
    return int(number) if kind == "checkpoint" and dash and number.isdecimal() else None


def flaw(checkpoint: Path) -> str:
    """What is missing or torn in a checkpoint; "" where it is complete by content, or its weights are in shards of
    DeepSpeed or FSDP, of which only the state is looked at."""
    proof = prove(checkpoint, step_of(checkpoint))
    if proof.complete or (proof.kind == "unsupported" and is_sharded(checkpoint)):
        return ""
    return proof.why


def newest_whole(output: Path, names: list[str]) -> str | None:
    """The newest checkpoint that is complete by content; None where none is."""
    for name in reversed(names):
        if not flaw(output / name):
            return name
    return None


def _refused(run: Effective, start: Start) -> Check:
    fix = texts.text("ahead.output.another_or_overwrite")
    if start.reason == "stage_ends":
        fix = f"adapter_name_or_path: {start.checkpoint}, which goes on from its weights, and another output_dir"
    elif run.config.given.get("resume_from_checkpoint"):
        whole = newest_whole(run.output_dir, start.checkpoints)
        there = f"resume_from_checkpoint: {run.output_dir / whole}" if whole else ""
        fix = there or texts.text("ahead.output.leave_out")
    return Check("output_dir", FAIL, "refused", None, start.why, fix)


def _new(run: Effective, start: Start) -> Check:
    text = start.why
    fix = texts.text("ahead.output.another_or_resume")
    if start.checkpoints:
        text += texts.text("ahead.output.mixed", names=_many(start.checkpoints))
    if start.deletes_log:
        text += texts.text("ahead.output.log_deleted", file=LOG)
    return Check("output_dir", WARN if start.checkpoints or start.deletes_log else PASS, "new", None, text, fix)


def _many(names: list[str]) -> str:
    return (
        names[0]
        if len(names) == 1
        else texts.text("ahead.output.many", count=len(names), first=names[0], last=names[-1])
    )


def _broken(run: Effective, start: Start, why: str) -> Check:
    whole = newest_whole(run.output_dir, start.checkpoints)
    text = texts.text("ahead.output.broken", start=start.why, why=sentence(why))
    if whole:
        text += texts.text("ahead.output.newest_whole", whole=whole)
        fix = f"resume_from_checkpoint: {run.output_dir / whole}"
    else:
        text += texts.text("ahead.output.none_whole")
        fix = texts.text("ahead.output.nothing_to_resume")
    return Check("output_dir", FAIL, start.checkpoint.name, whole, text, fix)


def _resumes(run: Effective, start: Start) -> Check:
    text, where = start.why, start.checkpoint
    if where.resolve().parent != run.output_dir.resolve():
        text = texts.text("ahead.output.outside", where=where, path=run.output_dir)
        return Check("output_dir", WARN, str(where), None, text, texts.text("ahead.output.go_on", path=where.parent))
    if start.deletes_log:
        text += texts.text("ahead.output.deletes", file=LOG)
        return Check("output_dir", WARN, where.name, None, text, "overwrite_output_dir: false")
    newer = start.checkpoints[start.checkpoints.index(where.name) + 1 :] if where.name in start.checkpoints else []
    if start.asked and newer:
        text += texts.text("ahead.output.mixed_after", names=_many(newer))
        fix = texts.text("ahead.output.move_away", names=_many(newer), last=newer[-1])
        return Check("output_dir", WARN, where.name, None, text, fix)
    if start.asked:
        return Check("output_dir", PASS, where.name, None, text)
    fix = texts.text("ahead.output.meant", where=where)
    return Check("output_dir", WARN, where.name, None, text, fix)
