"""What a resume needs besides the weights: optimizer, scheduler, scaler, RNG, trainer state; by content, file by file.

File names and rules are those of transformers 5.6 (`Trainer._save_checkpoint`, `_load_optimizer_and_scheduler`,
`_load_scaler`, `_load_rng_state`), accelerate 1.11 (`save_fsdp_model`, `save_fsdp_optimizer`) and DeepSpeed's engine
(`latest`, `global_stepN/`). Whatever is loaded is loaded with `weights_only`, as the Trainer does.
"""

import math
import re
from pathlib import Path
from typing import Literal

from ..texts import text
from .files import STATE, Incomplete, check_torch_file, file_named, read_json
from .optimizer_state import judge_optimizer
from .part import BROKEN, GOOD, MISSING, STALE, Expected, Part
from .pickle_words import training_args
from .shards import check_dcp, check_deepspeed
from .torch_file import load_rng, load_safely
from .trainer_state import wrong_kind

Layout = Literal["plain", "fsdp", "deepspeed"]

#: keys of the Trainer's RNG file that every machine writes
_RNG_KEYS = ("python", "numpy", "cpu")


def layout_of(folder: Path) -> Layout:
    """How the engine saved: DeepSpeed's `global_stepN`, FSDP's folders of shards, or plain files."""
    names = [entry.name for entry in folder.iterdir()]
    if any(re.fullmatch(r"global_step\d+", name) for name in names) or "latest" in names:
        return "deepspeed"
    if any(re.fullmatch(r"(pytorch_model_fsdp|optimizer)_\d+|pytorch_model_fsdp\.bin", name) for name in names):
        return "fsdp"
    return "plain"


def resume_parts(folder: Path, expected: Expected, quick: bool = False) -> list[Part]:
    """Look at each part of one checkpoint. Nothing is raised for a file that is missing or broken.

    Args:
        quick: only whether torch's files are whole, not what is in them; torch is not imported.

    Raises:
        OSError: the folder cannot be listed.
    """
    layout = layout_of(folder)
    if layout == "deepspeed":
        parts = [_deepspeed(folder, expected)]
    elif (folder / "optimizer_0").is_dir():
        parts = [sharded(folder, "optimizer", "optimizer_0", expected)]
    else:
        parts = [_optimizer(folder, expected, quick)]
    own_scheduler = layout == "deepspeed" and not (folder / "scheduler.pt").exists()  # then it is in DeepSpeed's shards
    if not own_scheduler:
        parts.append(_scheduler(folder, expected, quick))
    if expected.fp16 and layout != "deepspeed":
        parts.append(_scaler(folder, quick))
    return [*parts, *_rng(folder, expected, quick), _trainer_state(folder, expected), _training_args(folder)]


def _optimizer(folder: Path, expected: Expected, quick: bool) -> Part:
    name = "optimizer.pt" if (folder / "optimizer.pt").exists() else "optimizer.bin"  # FSDP's FULL_STATE_DICT
    if not (folder / name).exists():
        return Part(
            "optimizer",
            MISSING,
            "optimizer.pt",
            text("checkpoint.resume.optimizer", what=_nowhere(folder / "optimizer.pt")),
        )
    try:
        if quick:
            check_torch_file(folder / name)
            return Part("optimizer", GOOD, name)
        state, why = judge_optimizer(load_safely(folder / name), name, expected)
    except Incomplete as reason:
        state, why = BROKEN, str(reason)
    return Part("optimizer", state, name, why)


def _scheduler(folder: Path, expected: Expected, quick: bool) -> Part:
    name = "scheduler.pt"
    if not (folder / name).exists():
        why = text("checkpoint.resume.scheduler", name=name, what=_nowhere(folder / name))
        return Part("scheduler", MISSING, name, why)
    try:
        if quick:
            check_torch_file(folder / name)
            return Part("scheduler", GOOD, name)
        found = load_safely(folder / name)
    except Incomplete as reason:
        return Part("scheduler", BROKEN, name, str(reason))
    if not isinstance(found, dict) or not isinstance(found.get("last_epoch"), int):
        return Part("scheduler", BROKEN, name, text("checkpoint.resume.no_scheduler", name=name))
    rates = [rate for rate in found.get("_last_lr") or [] if isinstance(rate, (int, float))]
    if not all(map(math.isfinite, rates)):
        return Part("scheduler", BROKEN, name, text("checkpoint.resume.rate", name=name))
    at = found["last_epoch"]
    by_metric = "num_bad_epochs" in found  # reduce_lr_on_plateau and greedy count evaluations
    if at != expected.step and not expected.fp16 and not by_metric:
        return Part("scheduler", STALE, name, text("checkpoint.resume.at_step", name=name, at=at, step=expected.step))
    return Part("scheduler", GOOD, name)


def _scaler(folder: Path, quick: bool) -> Part:
    name = "scaler.pt"
    if not (folder / name).exists():
        why = text("checkpoint.resume.scaler", name=name, what=_nowhere(folder / name))
        return Part("scaler", MISSING, name, why)
    try:
        if quick:
            check_torch_file(folder / name)
            return Part("scaler", GOOD, name)
        scale = (load_safely(folder / name) or {}).get("scale")
    except (Incomplete, AttributeError) as reason:
        return Part("scaler", BROKEN, name, str(reason))
    if not isinstance(scale, (int, float)) or not math.isfinite(scale) or scale <= 0:
        return Part("scaler", BROKEN, name, text("checkpoint.resume.scale", name=name, scale=scale))
    return Part("scaler", GOOD, name)


def _rng(folder: Path, expected: Expected, quick: bool) -> list[Part]:
    """One part for each rank. A missing file costs the bit-exact order; one that cannot be read ends the resume."""
    names = [f"rng_state_{rank}.pth" for rank in range(expected.ranks)] if expected.ranks > 1 else ["rng_state.pth"]
    there = sorted(entry.name for entry in folder.glob("rng_state*.pth"))
    parts = []
    for name in names:
        file = folder / name
        if not file.exists():
            others = text("checkpoint.resume.other_world", name=there[0]) if there and names[0] not in there else ""
            why = text("checkpoint.resume.rng", name=name, what=_nowhere(file), others=others)
            parts.append(Part("rng", MISSING, name, why, needed=False))
            continue
        why = ""
        try:
            if quick:
                check_torch_file(file)
            else:
                found = load_rng(file)
                lacking = [key for key in _RNG_KEYS if not isinstance(found, dict) or key not in found]
                why = text("checkpoint.resume.lacks", name=name, parts=", ".join(lacking)) if lacking else ""
        except Incomplete as reason:
            why = str(reason)
        parts.append(Part("rng", BROKEN if why else GOOD, name, why))
    return parts


def _nowhere(file: Path) -> str:
    return text("checkpoint.resume.dead_link" if file.is_symlink() else "checkpoint.resume.missing")


def _trainer_state(folder: Path, expected: Expected) -> Part:
    try:
        found = read_json(folder / STATE)
    except Incomplete as reason:
        state = MISSING if not (folder / STATE).exists() else BROKEN
        return Part("trainer_state", state, STATE, str(reason))
    if why := wrong_kind(found):
        return Part("trainer_state", BROKEN, STATE, why)
    step = found.get("global_step")
    if step != expected.step:
        return Part(
            "trainer_state",
            BROKEN,
            STATE,
            text("checkpoint.resume.other_step", name=STATE, step=step, wanted=expected.step),
        )
    return Part("trainer_state", GOOD, STATE)


def _training_args(folder: Path) -> Part:
    """A pickle of a class: never loaded, only disassembled."""
    name = "training_args.bin"
    if not (folder / name).exists():
        why = text("checkpoint.resume.no_args", name=name)
        return Part("training_args", MISSING, name, why, needed=False)
    try:
        training_args(folder / name)
    except Incomplete as reason:
        return Part("training_args", BROKEN, name, str(reason), needed=False)
    return Part("training_args", GOOD, name)


def sharded(folder: Path, part: str, name: str, expected: Expected) -> Part:
    """One folder of FSDP's shards as a part: `.metadata` and a `.distcp` file for each rank."""
    try:
        ranks = check_dcp(folder / name)
    except Incomplete as reason:
        file = f"{name}/.metadata" if text("checkpoint.resume.no_metadata") in str(reason) else name
        why = text("checkpoint.resume.cut_off", reason=reason) if file != name else str(reason)
        return Part(part, BROKEN, file, why)
    if ranks < expected.ranks:
        return Part(part, BROKEN, name, text("checkpoint.resume.shards", name=name, ranks=ranks, wanted=expected.ranks))
    return Part(part, GOOD, name)


def _deepspeed(folder: Path, expected: Expected) -> Part:
    """DeepSpeed: `latest` names the folder with each rank's optimizer state and the model's states."""
    try:
        tag, ranks = check_deepspeed(folder)
    except FileNotFoundError as reason:
        return Part("optimizer", MISSING, "latest", str(reason))
    except Incomplete as reason:
        return Part("optimizer", BROKEN, file_named(str(reason)), str(reason))
    if ranks < expected.ranks:
        return Part(
            "optimizer",
            BROKEN,
            tag,
            text("checkpoint.resume.optimizer_ranks", tag=tag, ranks=ranks, wanted=expected.ranks),
        )
    return Part("optimizer", GOOD, tag)
