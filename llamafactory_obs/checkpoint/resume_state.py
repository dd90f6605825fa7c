"""What a resume needs besides the weights: optimizer, scheduler, scaler, RNG, trainer state; by content, file by file.

File names and rules are those of transformers 5.6 (`Trainer._save_checkpoint`, `_load_optimizer_and_scheduler`,
`_load_scaler`, `_load_rng_state`), accelerate 1.11 (`save_fsdp_model`, `save_fsdp_optimizer`) and DeepSpeed's engine
(`latest`, `global_stepN/`). Whatever is loaded is loaded with `weights_only`, as the Trainer does.
"""

import math
import re
import zipfile
from pathlib import Path
from typing import Literal

from ..probe.complete import STATE, Incomplete, read_json
from .optimizer_state import judge_optimizer
from .part import BROKEN, GOOD, MISSING, STALE, Expected, Part
from .torch_file import load_rng, load_safely

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


def resume_parts(folder: Path, expected: Expected) -> list[Part]:
    """Look at each part of one checkpoint. Nothing is raised for a file that is missing or broken.

    Raises:
        OSError: the folder cannot be listed.
    """
    layout = layout_of(folder)
    parts = [{"plain": _optimizer, "fsdp": _fsdp_optimizer, "deepspeed": _deepspeed}[layout](folder, expected)]
    own_scheduler = layout == "deepspeed" and not (folder / "scheduler.pt").exists()  # then it is in DeepSpeed's shards
    if not own_scheduler:
        parts.append(_scheduler(folder, expected))
    if expected.fp16 and layout != "deepspeed":
        parts.append(_scaler(folder))
    return [*parts, *_rng(folder, expected), _trainer_state(folder, expected), _training_args(folder)]


def _optimizer(folder: Path, expected: Expected) -> Part:
    name = "optimizer.pt" if (folder / "optimizer.pt").exists() else "optimizer.bin"  # FSDP's FULL_STATE_DICT
    if not (folder / name).exists():
        return Part("optimizer", MISSING, "optimizer.pt", "optimizer.pt is missing")
    try:
        state, why = judge_optimizer(load_safely(folder / name), name, expected)
    except Incomplete as reason:
        state, why = BROKEN, str(reason)
    return Part("optimizer", state, name, why)


def _scheduler(folder: Path, expected: Expected) -> Part:
    name = "scheduler.pt"
    if not (folder / name).exists():
        return Part("scheduler", MISSING, name, f"{name} is missing: the learning rate would start anew")
    try:
        found = load_safely(folder / name)
    except Incomplete as reason:
        return Part("scheduler", BROKEN, name, str(reason))
    if not isinstance(found, dict) or not isinstance(found.get("last_epoch"), int):
        return Part("scheduler", BROKEN, name, f"{name} is no scheduler's state: it has no `last_epoch`")
    rates = [rate for rate in found.get("_last_lr") or [] if isinstance(rate, (int, float))]
    if not all(map(math.isfinite, rates)):
        return Part("scheduler", BROKEN, name, f"{name}: its learning rate is not finite")
    at = found["last_epoch"]
    by_metric = "num_bad_epochs" in found  # reduce_lr_on_plateau and greedy count evaluations
    if at != expected.step and not expected.fp16 and not by_metric:
        return Part("scheduler", STALE, name, f"{name} is at step {at}, the checkpoint at {expected.step}")
    return Part("scheduler", GOOD, name)


def _scaler(folder: Path) -> Part:
    name = "scaler.pt"
    if not (folder / name).exists():
        return Part("scaler", MISSING, name, f"{name} is missing: fp16's loss scale would start anew at 65536")
    try:
        scale = (load_safely(folder / name) or {}).get("scale")
    except (Incomplete, AttributeError) as reason:
        return Part("scaler", BROKEN, name, str(reason))
    if not isinstance(scale, (int, float)) or not math.isfinite(scale) or scale <= 0:
        return Part("scaler", BROKEN, name, f"{name}: its scale is {scale!r}")
    return Part("scaler", GOOD, name)


def _rng(folder: Path, expected: Expected) -> list[Part]:
    """One part for each rank. A missing file costs the bit-exact order; one that cannot be read ends the resume."""
    names = [f"rng_state_{rank}.pth" for rank in range(expected.ranks)] if expected.ranks > 1 else ["rng_state.pth"]
    parts = []
    for name in names:
        file = folder / name
        if not file.exists():
            parts.append(Part("rng", MISSING, name, f"{name} is missing: a resume is not bit-exact", needed=False))
            continue
        try:
            found = load_rng(file)
            lacking = [key for key in _RNG_KEYS if not isinstance(found, dict) or key not in found]
            why = f"{name} lacks {', '.join(lacking)}" if lacking else ""
        except Incomplete as reason:
            why = str(reason)
        parts.append(Part("rng", BROKEN if why else GOOD, name, why))
    return parts


def _trainer_state(folder: Path, expected: Expected) -> Part:
    try:
        found = read_json(folder / STATE)
    except Incomplete as reason:
        state = MISSING if not (folder / STATE).exists() else BROKEN
        return Part("trainer_state", state, STATE, str(reason))
    step = found.get("global_step") if isinstance(found, dict) else None
    if step != expected.step:
        return Part("trainer_state", BROKEN, STATE, f"{STATE} is of step {step!r}, not {expected.step}")
    return Part("trainer_state", GOOD, STATE)


def _training_args(folder: Path) -> Part:
    """A pickle of a class: never loaded, only looked at from outside."""
    name = "training_args.bin"
    if not (folder / name).is_file():
        why = f"{name} is missing: a resume cannot be compared with it"
        return Part("training_args", MISSING, name, why, needed=False)
    if not zipfile.is_zipfile(folder / name):
        return Part("training_args", BROKEN, name, f"{name} is no whole torch file", needed=False)
    return Part("training_args", GOOD, name)


def _fsdp_optimizer(folder: Path, expected: Expected) -> Part:
    """FSDP: `optimizer_0/` holds a `.metadata` and a `.distcp` file for each rank; or one `optimizer.bin`."""
    place = folder / "optimizer_0"
    if not place.is_dir():
        return _optimizer(folder, expected)
    try:
        shards = [file for file in place.glob("*.distcp") if file.stat().st_size]
        whole = (place / ".metadata").is_file() and (place / ".metadata").stat().st_size > 0
    except OSError as error:
        return Part("optimizer", BROKEN, "optimizer_0", f"optimizer_0 cannot be read: {error.strerror}")
    if not whole:
        return Part(
            "optimizer", BROKEN, "optimizer_0/.metadata", "optimizer_0/.metadata is missing: a save was cut off"
        )
    if len(shards) < expected.ranks:
        why = f"optimizer_0 holds {len(shards)} of {expected.ranks} ranks' shards"
        return Part("optimizer", BROKEN, "optimizer_0", why)
    return Part("optimizer", GOOD, "optimizer_0")


def _deepspeed(folder: Path, expected: Expected) -> Part:
    """DeepSpeed: `latest` names the folder with each rank's optimizer state and the model's states."""
    try:
        tag = (folder / "latest").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return Part("optimizer", MISSING, "latest", "`latest` is missing: DeepSpeed does not find its own state")
    place = folder / tag
    if not tag or not place.is_dir():
        return Part("optimizer", MISSING, tag, f"`latest` names {tag!r}, which is not there")
    optim = sorted(place.glob("*optim_states.pt"))
    models = sorted(place.glob("*model_states.pt"))
    bad = [file.name for file in (*optim, *models) if not zipfile.is_zipfile(file)]
    if bad:
        return Part("optimizer", BROKEN, f"{tag}/{bad[0]}", f"{tag}/{bad[0]} is no whole torch file")
    if len(optim) < expected.ranks or not models:
        why = (
            f"{tag} holds the optimizer state of {len(optim)} of {expected.ranks} ranks and {len(models)} model states"
        )
        return Part("optimizer", BROKEN, tag, why)
    return Part("optimizer", GOOD, tag)
